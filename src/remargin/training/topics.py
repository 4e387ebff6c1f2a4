"""Topics of queries: k-means over their vectors, once for each training run."""

from __future__ import annotations

import copy
import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.data.tokens import TokenStore
from remargin.errors import InputError
from remargin.files.atomic import new_file
from remargin.model.encoder import BiEncoder
from remargin.progress import track

ITERATIONS = 30
# The vectors in the sample from which the first centroids are chosen, for each cluster.
SAMPLE = 32
# The most similarities, of a block of vectors to all clusters, that are in memory at once.
SIMILARITIES_AT_ONCE = 1 << 24
QUERIES_AT_ONCE = 1 << 16
DIGEST = 32  # bytes of the checksum behind the topics in their file


def kmeans(vectors: Tensor, clusters: int, seed: int, iterations: int = ITERATIONS) -> Tensor:
    """The cluster of each vector, (n,), by Lloyd's k-means from k-means++; on the device of the vectors.

    The numbers are 0, 1, ... without gaps: a cluster that ends up empty is left out, so there may be fewer than asked.
    On a CPU, the same seed gives the same clusters.

    Args:
        vectors: (n, d) in float32.
        clusters: how many, at most.
        seed: for where the clusters begin.
        iterations: how many, at most; it ends when no vector changes its cluster.

    Example:
        >>> topics = kmeans(torch.tensor([[0.0], [9.0], [0.1], [9.1]]), clusters=2, seed=0).tolist()
        >>> topics in ([0, 1, 0, 1], [1, 0, 1, 0])
        True
    """
    centre = vectors.mean(0)  # distances from there are small numbers, and so more exact
    own = torch.Generator().manual_seed(seed)
    centroids = _first_centroids(vectors, centre, min(clusters, len(vectors)), own)
    nearest = torch.full((len(vectors),), -1, device=vectors.device)
    for _ in range(iterations):
        assigned, sums = _assign(vectors, centre, centroids)
        if torch.equal(assigned, nearest):
            break
        nearest = assigned
        counts = torch.bincount(nearest, minlength=len(centroids))[:, None]
        centroids = torch.where(counts > 0, sums / counts.clamp(min=1), centroids)
    numbers: Tensor = nearest.unique(return_inverse=True)[1]
    return numbers


def _first_centroids(vectors: Tensor, centre: Tensor, clusters: int, own: torch.Generator) -> Tensor:
    """k-means++ over a sample: one vector after another, drawn by its squared distance from those chosen before."""
    sample = torch.randperm(len(vectors), generator=own)[: max(clusters * SAMPLE, 1 << 12)]
    candidates = vectors[sample.to(vectors.device)] - centre
    draws = torch.rand(clusters, generator=own).to(vectors.device)
    distances = torch.ones(len(candidates), device=vectors.device)
    chosen = []
    for draw in draws:
        sums = distances.cumsum(0)
        place = torch.searchsorted(sums, draw * sums[-1], right=True).clamp(max=len(candidates) - 1)
        chosen.append(candidates[place])
        to_new = (candidates - chosen[-1]).square().sum(1)
        distances = to_new if len(chosen) == 1 else torch.minimum(distances, to_new)
    return torch.stack(chosen)


def _assign(vectors: Tensor, centre: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centroid of each vector, and the sum of the vectors that are nearest to each centroid."""
    nearest, sums = [], torch.zeros_like(centroids)
    half_squares = centroids.square().sum(1) / 2
    for block in vectors.split(max(1, SIMILARITIES_AT_ONCE // len(centroids))):
        block = block - centre
        nearest.append((half_squares - block @ centroids.T).argmin(1))
        sums.index_add_(0, nearest[-1], block)
    return torch.cat(nearest), sums


def default_clusters(queries: int, batch_size: int) -> int:
    """How many topics there are by default: as many as give each about four batches of queries.

    >>> default_clusters(10_000, batch_size=64), default_clusters(10, batch_size=64)
    (39, 1)
    """
    return max(1, queries // (4 * batch_size))


def mean_batch(batch_size: int) -> int:
    """How many queries a batch of one topic has on average, at least.

    A topic has about four batches of queries; with a few queries more than four batches hold, it has five smaller ones.

    >>> mean_batch(128)
    102
    """
    return max(1, batch_size * 4 // 5)


def query_topics(
    model: BiEncoder, queries: TokenStore, rows: NDArray[np.int64], clusters: int, seed: int
) -> NDArray[np.int32]:
    """The topic of every query of a store, by k-means over the vectors that a model gives them; -1 for other queries.

    Args:
        model: the encoder as it is.
        queries: their tokens.
        rows: the queries that are to have a topic.
        clusters: how many topics, at most.
        seed: for k-means.

    Example:
        >>> import tempfile
        >>> store = TokenStore.write(Path(tempfile.mkdtemp()) / "queries", ["q1", "q2", "q3"], ["a", "the", "of a"],
        ...                          tokenizer, length=30)
        >>> query_topics(BiEncoder.from_pretrained(model_folder), store, np.array([0, 2]), clusters=1, seed=0).tolist()
        [0, -1, 0]
    """
    encoder = copy.copy(model)  # of the same weights; what it lays out to encode with goes when it goes
    blocks = np.split(rows, range(QUERIES_AT_ONCE, len(rows), QUERIES_AT_ONCE))
    encoded = [encoder.encode_tokens(queries.take(block)) for block in track(blocks, "encoding queries")]
    vectors = torch.from_numpy(np.concatenate(encoded)).to(model.device)
    topics = np.full(len(queries), -1, np.int32)
    topics[rows] = kmeans(vectors, clusters, seed).cpu().numpy()
    return topics


def run_topics(
    path: Path,
    queries: int,
    rows: NDArray[np.int64],
    find: Callable[[], NDArray[np.int32]],
    resume: bool,
    say: Callable[[str], None],
) -> NDArray[np.int32]:
    """The topics in a training run's file, if it is resumed; else those that `find` makes, and the file is written.

    Args:
        path: the file.
        queries: how many queries there are.
        rows: those that must have a topic.
        find: makes the topics.
        resume: take the file, if it is there.
        say: called with a message when topics were made.

    Raises:
        InputError: if the file is damaged, or has the topics of other queries.
    """
    if resume and path.exists():
        return _read(path, queries, rows)
    topics = find()
    sizes = np.bincount(topics[rows])
    say(f"topics: {len(sizes):,}, of {sizes.min():,} to {sizes.max():,} queries")
    out = io.BytesIO()
    np.save(out, topics)
    with new_file(path, overwrite=True) as file:
        file.write(out.getvalue() + hashlib.sha256(out.getvalue()).digest())
    return topics


def _read(path: Path, queries: int, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    do = "start the training run anew in another folder"
    content = path.read_bytes() if path.is_file() else b""
    array, checksum = content[:-DIGEST], content[-DIGEST:]
    if hashlib.sha256(array).digest() != checksum:
        raise InputError("cannot be read as topics of queries", file=path, do=do)
    try:
        topics = np.load(io.BytesIO(array), allow_pickle=False)
    except (EOFError, MemoryError, SyntaxError, ValueError):
        topics = None
    right = isinstance(topics, np.ndarray) and topics.dtype == np.int32 and topics.shape == (queries,)
    if not right or (topics[rows] < 0).any():
        raise InputError("has the topics of other queries", file=path, do=do)
    return np.asarray(topics)
