"""Mine negatives with a model instead of BM25, without those that may be relevant.

What an encoder ranks first and gets wrong teaches it most; but among these documents are also right answers that nobody
judged. The bound leaves out candidates that score nearly as high as the positive. Read the list of suspicious ones.
"""

from remargin import fit, mine

MODEL = "minilm"
DATA = "docstrings:stdlib"
STEPS = 50

mined = mine(DATA, "hard.tsv", "model", MODEL, depth=50, per_triplet=4, bound=0.95, overwrite=True)
print(f"{mined.triplets} triplets; {mined.skipped} candidates left out, because they score like the positive")
print("the candidates that look most like answers nobody judged:")
for candidate in mined.suspicious[:5]:
    print(f"  {candidate}")

fitted = fit(DATA, MODEL, "runs/hard", triplets="hard.tsv", steps=STEPS)
print(f"{fitted.measure} on dev: {fitted.before} before, {fitted.best} after")
