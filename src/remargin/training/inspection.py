"""One training instance, explained: what a batch asks of a query, its positive, and all negatives. The paper's table 2.

For query i with positive i and negative j: relevance is sim(q_i, d_j), the target t_ij is (1 + sim(p_i, n_j)) / 2, and
the instance's loss is (sim(q_i, p_i) - sim(q_i, n_j) - t_ij)². This is the paper's equation 2 with in-batch negatives,
which the numbers that its table prints follow too. Equation 3, distributed targets, has n_i in place of n_j in the
margin: the query's own negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remargin.data.collection import open_source
from remargin.data.training_data import TrainingData
from remargin.errors import InputError
from remargin.losses.inputs import Similarity
from remargin.model.encoder import BiEncoder
from remargin.model.loading import load_encoder
from remargin.reports.tables import Block, Cell, Table, number
from remargin.retrieval.encoders import given_texts
from remargin.training.batches import Batches
from remargin.training.samplers import RandomSampler

LONGEST = 240  # characters of a text that are shown
EQUATION = (
    "Numbers follow the paper's equation 2 with in-batch negatives, as those in its table 2 do: loss = (relevance of "
    "the positive - relevance of the negative - target)². Equation 3, distributed targets, keeps the relevance of the "
    "query's own negative, and changes only the target."
)


@dataclass(frozen=True)
class Passage:
    """A text of the instance: its role, id and text, its relevance to the query, its target and its loss."""

    role: str
    id: str
    text: str
    relevance: float | None = None
    target: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Instance:
    """A query, its positive, and the negatives with the highest, a middle and the lowest target."""

    query: Passage
    positive: Passage
    negatives: tuple[Passage, ...]
    mean_target: float
    mean_loss: float

    @property
    def passages(self) -> list[Passage]:
        """All of them, the query first."""
        return [self.query, self.positive, *self.negatives]


@dataclass(frozen=True)
class Explained:
    """The numbers of one query of a batch, for every negative."""

    positive_relevance: float
    relevance: NDArray[np.float64]
    targets: NDArray[np.float64]
    losses: NDArray[np.float64]

    def chosen(self, among: NDArray[np.bool_] | None = None) -> dict[str, int]:
        """The negatives with the highest target, the one closest to the mean, and the lowest; of some, or of all."""
        places = np.arange(len(self.targets)) if among is None else np.flatnonzero(among)
        targets = self.targets[places]
        chosen = {
            "highest": targets.argmax(),
            "middle": np.abs(targets - self.targets.mean()).argmin(),
            "lowest": targets.argmin(),
        }
        return {role: int(places[place]) for role, place in chosen.items()}


def explain(
    query: NDArray[np.floating],
    positive: NDArray[np.floating],
    negatives: NDArray[np.floating],
    similarity: Similarity = "cosine",
) -> Explained:
    """Relevance, targets and losses of one query, from the vectors of a batch.

    >>> q, p, n = np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> explained = explain(q, p, n)
    >>> explained.targets.tolist(), explained.losses.tolist()
    ([0.5, 0.0], [0.25, 4.0])
    """
    given = (np.asarray(vectors, np.float64) for vectors in (query, positive, negatives))
    q, p, n = (_unit(vectors) if similarity == "cosine" else vectors for vectors in given)
    relevance, targets = n @ q, (1 + n @ p) / 2
    own = float(q @ p)
    return Explained(own, relevance, targets, (own - relevance - targets) ** 2)


def inspect(
    data: str | Path,
    model: BiEncoder | str | Path,
    query: str | None = None,
    batch: int = 0,
    batch_size: int = 64,
    seed: int = 0,
    per_triplet: int = 1,
    pooling: str | None = None,
    similarity: str | None = None,
) -> Instance:
    """Explain one query of a training batch with the distributed target; what `remargin inspect` does.

    A query's positive may be the negative of another query: it is not shown as a negative, but it counts in the means,
    as in the loss.

    Args:
        data: a folder that `prepare` or `fit` (`out`/data) wrote, with triplets, by this model's tokenizer.
        model: the encoder: a model, a folder, or a name of the Hugging Face hub.
        query: the id of a query of the batch. Without it, the first query.
        batch: the number of the batch, from 0, as `fit` with the same batch size, seed and number of negatives draws it
            in random order.
        batch_size: triplets in the batch.
        seed: the random seed of the training run.
        per_triplet: negatives of each triplet in the batch.
        pooling: see `BiEncoder`; without it, as the model's folder says.
        similarity: "cosine" or "dot"; without it, as the model's folder says.

    Raises:
        InputError: if the data are of another model, triplets have fewer negatives, or the query is not in the batch.

    Example:
        >>> import tempfile
        >>> from remargin import fit
        >>> out = Path(tempfile.mkdtemp()) / "run"
        >>> fitted = fit("docstrings:json,csv", model_folder, out, steps=1, say=str)
        >>> [passage.role for passage in inspect(out / "data", fitted.model, batch_size=4).passages][:2]
        ['query', 'positive']
    """
    training = TrainingData(data)
    lengths = training.queries.header["length"], training.documents.header["length"]
    model = load_encoder(model, **given_texts(*lengths, None, None, pooling, similarity))
    training.require(model)
    batches = Batches(training, RandomSampler.of(training.triplets, batch_size, seed, per_triplet))
    rows = batches.batch(batch)
    queries, documents = training.queries.ids, training.documents.ids
    place = _place([queries[row] for row in rows.queries.tolist()], query, batch)
    size, of_negatives = len(rows.queries), rows.negatives.ravel()
    of_queries, positives, others = np.split(model.encode_tokens(rows.texts), [size, 2 * size])
    explained = explain(of_queries[place], positives[place], others, model.similarity)
    id, own = queries[int(rows.queries[place])], documents[int(rows.positives[place])]
    chosen = explained.chosen(among=of_negatives != rows.positives[place])  # which may be another's negative
    names = {role: documents[int(of_negatives[j])] for role, j in chosen.items()}
    questions, passages = _texts(Path(data), {id}, {own, *names.values()})
    shown = []
    for role, j in chosen.items():
        values = (float(of[j]) for of in (explained.relevance, explained.targets, explained.losses))
        shown.append(Passage(f"negative, {role} target", names[role], passages[names[role]], *values))
    return Instance(
        Passage("query", id, questions[id]),
        Passage("positive", own, passages[own], explained.positive_relevance),
        tuple(shown),
        float(explained.targets.mean()),
        float(explained.losses.mean()),
    )


def instance_table(instance: Instance, title: str, longest: int = LONGEST) -> Table:
    """The instance as the paper's table 2 shows it, with at most `longest` characters of each text.

    >>> passage = Passage("query", "q1", "a very long text " * 50)
    >>> table = instance_table(Instance(passage, passage, (), 0.5, 0.1), "q1")
    >>> len(table.blocks[0].rows[0][1].text)
    240
    """
    rows = [
        [Cell(p.role), Cell(_short(p.text, longest)), number(p.relevance), number(p.target), number(p.loss)]
        for p in instance.passages
    ]
    notes = [
        f"Over all negatives of the batch, the mean target is {instance.mean_target:.3f} and the mean loss "
        f"{instance.mean_loss:.3f}. Relevance is the similarity to the query.",
        EQUATION,
    ]
    return Table(title, ["", "text", "relevance", "target", "loss"], [Block("", rows)], notes)


def _short(text: str, longest: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)


def _place(ids: list[str], query: str | None, batch: int) -> int:
    if query is None:
        return 0
    if query not in ids:
        problem = f"query {query!r} is not in batch {batch}"
        raise InputError(problem, do=f"choose one that is, such as {ids[0]}, or another batch")
    return ids.index(query)


def _texts(data: Path, queries: set[str], documents: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The texts of a few queries and documents, without holding the whole collection."""
    source = open_source(data)
    return (
        {item.id: item.text for item in source.queries() if item.id in queries},
        {item.id: item.text for item in source.documents() if item.id in documents},
    )
