"""You have documents, and no questions at all: headings are queries, and their sections are documents.

The folder is the documentation of remargin, so run this in the root of the repository, or name a folder of yours: a
handbook, a wiki, a manual, in Markdown, reStructuredText, HTML or plain text. It is small, so expect a wide interval.
"""

from remargin import Collection, ask, fit, index

MODEL = "minilm"
FOLDER = "docs"
STEPS = 50

data = f"files:{FOLDER}"
for split in ("train", "dev", "test"):  # whole files: no section of a file that is tested on was trained on
    collection = Collection.load(data, split)
    print(f"{split}: {len(collection.queries)} headings, {len(collection.documents)} sections")
heading, text = next(iter(collection.queries.values())), next(iter(collection.documents.values()))
print(f"a query: {heading!r}; a document: {text[:80]!r} ...")

fitted = fit(data, MODEL, "runs/handbook", steps=STEPS)
if fitted.outcome is not None:
    gain = fitted.outcome.gain("nDCG@10")
    print(f"gain on {fitted.outcome.split}: {gain.mean:+.3f} nDCG@10 ({gain.low:+.3f} to {gain.high:+.3f})")

index("handbook.index", data=data, model=fitted.model)
for answer in ask("what does the model forget?", "handbook.index", k=3):
    print(f"{answer.score:.3f}  {answer.id}")
