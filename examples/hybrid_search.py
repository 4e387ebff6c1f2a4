"""An index that holds BM25 beside an encoder's vectors, and fuses both rankings.

BM25 finds rare words, names and numbers; the encoder finds what is said in other words. The weight of the encoder is
chosen on the dev split: `fit` does so and writes it to the model folder, or you do so here for a model as it is.
"""

from remargin import BiEncoder, Collection, ask, evaluate, index, search

MODEL = "minilm"
DATA = "docstrings:stdlib"

encoder = BiEncoder.from_pretrained(MODEL)
index("both.index", data=DATA, model=encoder, hybrid=0.5)  # texts are encoded once, whatever the weight

dev = Collection.load(DATA, "dev")
means = {}
for weight in (0.0, 0.25, 0.5, 0.75, 1.0):  # 0 is BM25 alone, 1 the encoder alone
    run = search(dev, "both.index", model=encoder, hybrid=weight)
    means[weight] = evaluate(run, dev, "nDCG@10").means["nDCG@10"]
    print(f"weight of the encoder {weight:.2f}: {means[weight]:.3f} nDCG@10 on dev")
best = max(means, key=lambda weight: means[weight])

for hybrid in (best, "off"):
    print(f"hybrid {hybrid}:")
    for answer in ask("wrap long lines of text", "both.index", k=3, model=encoder, hybrid=hybrid):
        print(f"  {answer.score:.3f}  {answer.id}")
