"""Between two models: what fine-tuning gains at home, what it loses elsewhere, and the points between.

Trains without blending, then measures models on the line between the starting and the trained weights. Nothing is
trained again for that. `fit` does this by itself, and keeps the first point that has nearly all of the gain on dev.
"""

from remargin import Collection, blend, evaluate, fit, search

MODEL = "minilm"
HOME, ELSEWHERE = "docstrings:stdlib", "docstrings:numpy"
STEPS = 50

fitted = fit(HOME, MODEL, "runs/home", steps=STEPS, blend=1)
collections = {name: Collection.load(data, "dev") for name, data in (("home", HOME), ("elsewhere", ELSEWHERE))}

print("weight  " + "  ".join(f"{name:>9}" for name in collections))
for weight in (0, 0.25, 0.5, 0.75, 1):
    model = blend(MODEL, fitted.model, weight).model
    means = [evaluate(search(c, model=model), c, "nDCG@10").means["nDCG@10"] for c in collections.values()]
    print(f"{weight:6.2f}  " + "  ".join(f"{mean:9.3f}" for mean in means))

chosen = blend(MODEL, fitted.model, data=HOME, out="runs/blended", overwrite=True)
print(f"dev chose {chosen.weight}: runs/blended")
