"""Would more data help? Trains on growing shares of the training queries, and measures each model on all of test.

The answer is yes, no or unclear, with the gain of the last step and its interval. With more seeds it is clearer, and
takes longer: every share is trained once for each. If interrupted, the same call continues.
"""

from remargin import curve

MODEL = "minilm"
DATA = "docstrings:stdlib"
STEPS = 50

result = curve(DATA, MODEL, "runs/curve", shares=(0.25, 1.0), seeds=(0, 1), steps=STEPS)
for point in result.points:
    print(f"{point.pairs} pairs: {point.mean.mean:.3f} {result.measure}, {point.gain.mean:+.3f} over the start")
print(result.verdict)
print("as a page: remargin report runs/curve --out curve.html")
