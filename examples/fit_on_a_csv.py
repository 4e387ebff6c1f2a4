"""Fine-tune an encoder on a table of questions and answers, and see what that gained.

The table is written first, from the documentation of NumPy and SciPy, to have one; put yours in its place. Takes a few
minutes on a laptop.
"""

import csv
import importlib
import inspect

from remargin import ask, fit, index

MODEL = "minilm"
STEPS = 50
MODULES = ["numpy", "scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal", "scipy.special", "scipy.stats"]

with open("faq.csv", "w", newline="", encoding="utf-8") as file:
    table = csv.writer(file)
    table.writerow(["id", "question", "answer"])
    for name in MODULES:
        for function, value in inspect.getmembers(importlib.import_module(name), callable):
            question, _, answer = (inspect.getdoc(value) or "").partition("\n\n")
            if not function.startswith("_") and question and answer.strip():
                table.writerow([f"{name}.{function}", " ".join(question.split()), answer[:500]])

# Splits the table, mines negatives, trains, blends with the starting weights, and measures on test.
fitted = fit("pairs:faq.csv", MODEL, "runs/faq", steps=STEPS)
print(f"the model to use: {fitted.model}")
if fitted.outcome is not None:
    gain = fitted.outcome.gain("nDCG@10")
    print(f"gain on {fitted.outcome.split}: {gain.mean:+.3f} nDCG@10 ({gain.low:+.3f} to {gain.high:+.3f})")
if fitted.away is not None:
    print(fitted.away.line())

index("faq.index", data="pairs:faq.csv", model=fitted.model)
for answer in ask("how spread out are my numbers?", "faq.index", k=3):
    print(f"{answer.score:.3f}  {answer.id}")
