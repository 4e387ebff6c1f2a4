"""Train a projection over vectors that are there already, of images, products or music: no text at all.

vectors.npy has one row for each thing, pairs.npy the rows of things that belong together. Without these files, the
script makes some, in which most of a vector has nothing to do with what it stands for.
"""

from pathlib import Path

import numpy as np
import torch

from remargin import SoftmaxMarginLoss

VECTORS, PAIRS = Path("vectors.npy"), Path("pairs.npy")
DIMENSION = 32  # of the projected vectors
STEPS = 300
BATCH = 128

if not VECTORS.exists():
    rng = np.random.default_rng(0)
    things = rng.normal(size=(2000, 8))  # what they are; two views of each, and much noise
    views = [things + 0.3 * rng.normal(size=things.shape) for _ in range(2)]
    noise = rng.normal(size=(4000, 120))
    np.save(VECTORS, np.hstack([np.vstack(views), noise]).astype(np.float32) @ rng.normal(size=(128, 128)))
    np.save(PAIRS, np.arange(4000).reshape(2, 2000).T)

vectors = torch.from_numpy(np.load(VECTORS, mmap_mode="r").astype(np.float32))
pairs = torch.from_numpy(np.load(PAIRS).astype(np.int64))
train, test = pairs[: len(pairs) * 4 // 5], pairs[len(pairs) * 4 // 5 :]


def recall_at_10(project: torch.nn.Module) -> float:
    """How often the other half of a held-out pair is among the ten nearest of all second halves."""
    with torch.no_grad():
        queries, documents = (torch.nn.functional.normalize(project(vectors[column]), dim=1) for column in test.T)
    nearest = (queries @ documents.T).topk(10).indices
    return (nearest == torch.arange(len(test))[:, None]).any(1).float().mean().item()


torch.manual_seed(0)
projection = torch.nn.Linear(vectors.shape[1], DIMENSION, bias=False)
loss = SoftmaxMarginLoss()
optimiser = torch.optim.AdamW(projection.parameters(), lr=1e-3)
print(f"R@10 of the vectors as they are: {recall_at_10(torch.nn.Identity()):.3f}")
for step in range(STEPS):
    queries, positives = vectors[train[torch.randint(len(train), (BATCH,))]].unbind(1)
    negatives = vectors[train[torch.randint(len(train), (BATCH,)), 1]]
    value = loss(projection(queries), projection(positives), projection(negatives))
    optimiser.zero_grad()
    value.backward()
    optimiser.step()
    if step % 100 == 0:
        print(f"step {step}: loss {value.item():.4f}")
print(f"R@10 after the projection: {recall_at_10(projection):.3f}")
np.save("projection.npy", projection.weight.detach().numpy())  # new vectors: old @ projection.T
