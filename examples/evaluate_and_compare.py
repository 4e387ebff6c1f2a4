"""Is the encoder better than BM25, or does it only look so?

Ranks the test queries with BM25, with an encoder and with the fusion of both, measures them, and tests the differences,
query by query. With few queries even a large difference may be chance; the last column says how large one must be to
show.
"""

from remargin import BiEncoder, Collection, compare, evaluate, fuse, search
from remargin.reports.comparing import comparison_text

MODEL = "minilm"
DATA = "docstrings:stdlib"

test = Collection.load(DATA, "test")
print(f"{len(test.queries)} queries, {len(test.documents)} documents")
runs = {"BM25": search(test, "bm25"), "encoder": search(test, model=BiEncoder.from_pretrained(MODEL))}
for name, run in runs.items():
    run.save(f"{name}.trec", overwrite=True)  # any tool that reads TREC run files reads these
runs["fused"] = fuse(list(runs.values())).run  # by reciprocal rank: no weight to choose

for name, run in runs.items():
    means = evaluate(run, test, ["nDCG@10", "R@100", "RR"]).means
    print(f"{name:8}", "  ".join(f"{measure} {mean:.3f}" for measure, mean in means.items()))

comparison = compare(runs, test, "nDCG@10", reference="BM25", bound=0.02)
print(comparison_text(comparison, "terminal"))
