"""Training a cross-encoder on the triplets that a bi-encoder is to learn from: the teacher for its margins."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remargin.ahead import ahead
from remargin.cross_encoder import FORMAT, OURS, CrossEncoder, Pair
from remargin.data.collection import Collection
from remargin.data.shuffle import Shuffle
from remargin.data.tables import Rejects
from remargin.data.tokens import LONGER, PairTokens
from remargin.data.triplets import read_id_triplets
from remargin.encoder import encoding_dtype
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.files import read_header, refuse_existing, sha256
from remargin.progress import track
from remargin.retrieval.search import search
from remargin.training.optimiser import learning_rate
from remargin.training.settings import FitSettings


@dataclass(frozen=True)
class TeacherSettings:
    """How to train a cross-encoder, and how often and on what to measure it on the way."""

    epochs: int = 4
    batch_size: int = 64
    learning_rate: float = 1e-4
    warm_up: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    validations: int = 4
    validation_measure: str = "nDCG@10"
    validation_depth: int = 50
    validation_queries: int = 200

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "validations", "validation_depth", "validation_queries"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", do="it must be at least 1")
        self.schedule(1)

    def schedule(self, steps: int) -> FitSettings:
        """A learning rate that rises for a share of the steps, and then falls to zero."""
        rate = self.learning_rate
        return FitSettings(steps=steps, learning_rate=rate, warm_up=self.warm_up, schedule="linear")


@dataclass
class Trained:
    """What came of training a cross-encoder, and what it cost.

    Attributes:
        first_loss, last_loss: means over the first and the last tenth of the steps.
        first_stage, best: the measure of what it re-ranks, and of what it makes of that.
        seconds: all of it, of which `validation_seconds` went into measuring.
        fingerprint: of what it was made from.
    """

    triplets: int
    rejected: int
    steps: int
    first_loss: float
    last_loss: float
    measure: str
    first_stage: float | None
    best: float | None
    best_step: int
    seconds: float
    validation_seconds: float
    fingerprint: str = field(repr=False)
    validations: list[tuple[int, float]] = field(default_factory=list, repr=False)


def train_cross_encoder(
    model: CrossEncoder,
    collection: Collection,
    triplets: str | Path,
    out: str | Path,
    settings: TeacherSettings | None = None,
    validation: Collection | None = None,
    first_stage: Run | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = print,
) -> Trained:
    """Teach a cross-encoder to tell the positive of each triplet from its negatives, and save it.

    The loss is the cross-entropy of the softmax over a triplet's scores. Where `out` holds what the same call made
    before, that is loaded instead.

    Args:
        model: an encoder with a new head, or a cross-encoder to go on with; its weights are changed.
        collection: the texts.
        triplets: a table of ids over the collection, as `mine` writes it.
        out: the model's folder. Its remargin_cross_encoder.json has what this function returns.
        settings: everything else.
        validation: a collection of held-out queries; the model that re-ranks the first stage best is kept. Without it,
            the last one is.
        first_stage: a run of those queries; without one, BM25's.
        skip_bad: leave triplets out that the collection does not know, and count them.
        overwrite: replace another cross-encoder in `out`.
        say: gets a line for people now and then.

    Raises:
        InputError: for bad input, with its file, line and id, and if the loss is not a number.
    """
    started = time.perf_counter()
    settings, out, path = settings or TeacherSettings(), Path(out), Path(triplets)
    fingerprint = _fingerprint(model, collection, path, settings, validation, first_stage)
    made = _made_before(out, fingerprint)
    if made is not None:
        say(f"{out} was trained on the same triplets in the same way: used as it is")
        model.take_over(CrossEncoder.from_pretrained(out, device=model.device))
        return made
    refuse_existing(out, overwrite, OURS)
    rejects = Rejects(skip=skip_bad)
    data = _Data(model, collection, path, settings, rejects)
    validator = None if validation is None else _Reranking(model, validation, settings, first_stage)
    device, dtype = model.device, encoding_dtype(model.precision, model.device)
    size, epochs = settings.batch_size, settings.epochs
    say(f"{data.steps:,} steps of {size} triplets ({epochs} epochs of {len(data):,}) on {device}")
    torch.manual_seed(settings.seed)
    schedule = settings.schedule(data.steps)
    weights = list(model.model.parameters())
    matrices = {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": settings.weight_decay}
    others = {"params": [weight for weight in weights if weight.ndim <= 1], "weight_decay": 0.0}
    optimiser = torch.optim.AdamW([matrices, others], lr=settings.learning_rate, fused=True)
    marks = {math.ceil(data.steps * (i + 1) / settings.validations) for i in range(settings.validations)}
    losses: list[Tensor] = []
    validations: list[tuple[int, float]] = []
    best: tuple[int, float, dict[str, Tensor]] | None = None
    validation_seconds = 0.0
    model.model.train()
    for step, batch in enumerate(track(ahead(data), "training the teacher", total=data.steps), start=1):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(schedule, step - 1)
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            scores = model.logits(batch).view(-1, data.width)
        loss = cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=device))  # the positive is first
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, settings.clip)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.detach())
        if step not in marks:
            continue
        if not math.isfinite(loss.item()):
            do = f"use a lower learning rate than {settings.learning_rate:g}"
            raise InputError(f"the loss is {loss.item()} at step {step}", do=do)
        if validator is not None:
            began = time.perf_counter()
            value = validator(model)
            validations.append((step, value))
            if best is None or value >= best[1]:  # of two alike, the one that saw more
                best = step, value, {n: w.detach().cpu().clone() for n, w in model.model.state_dict().items()}
            validation_seconds += time.perf_counter() - began
            measured = f"{settings.validation_measure} {value:.4f} on {validator.split}"
            say(f"step {step:,}: loss {loss.item():.4f}, {measured}")
    model.model.eval()
    if best is not None:
        model.model.load_state_dict(best[2])
    values, tenth = torch.stack(losses).tolist(), max(1, data.steps // 10)
    trained = Trained(
        triplets=len(data),
        rejected=len(rejects.errors),
        steps=data.steps,
        first_loss=sum(values[:tenth]) / tenth,
        last_loss=sum(values[-tenth:]) / tenth,
        measure=settings.validation_measure,
        first_stage=None if validator is None else validator.before,
        best=None if best is None else best[1],
        best_step=data.steps if best is None else best[0],
        seconds=round(time.perf_counter() - started, 3),
        validation_seconds=round(validation_seconds, 3),
        fingerprint=fingerprint,
        validations=validations,
    )
    origin = {"from": model.name, "data": collection.name, "split": collection.split, "settings": asdict(settings)}
    model.untrained, model.trained = False, {**origin, **asdict(trained)}
    model.save(out, overwrite)
    model.name = str(out)
    return trained


class _Data:
    """Batches of triplets as tokens, in another order each epoch."""

    def __init__(
        self, model: CrossEncoder, collection: Collection, path: Path, settings: TeacherSettings, rejects: Rejects
    ) -> None:
        found = list(read_id_triplets(path, rejects, collection))
        unfit = set(model.too_long({t.query: collection.queries[t.query] for t in found}))
        for triplet in found:
            if triplet.query in unfit:
                problem = f"query leaves no room for a document in {model.length} tokens"
                rejects.add(InputError(problem, file=path, line=triplet.line, id=triplet.query, do=LONGER))
        self._triplets = [t for t in found if t.query not in unfit]
        if not self._triplets:
            raise InputError("no usable triplets in it", file=path, do=rejects.first())
        self._model, self._collection, self._settings = model, collection, settings
        self._steps = math.ceil(len(self) / settings.batch_size)
        self.steps = settings.epochs * self._steps
        self.width = 1 + len(self._triplets[0].negatives)

    def __len__(self) -> int:
        return len(self._triplets)

    def __iter__(self) -> Iterator[PairTokens]:
        for epoch in range(self._settings.epochs):
            order = Shuffle(len(self), self._settings.seed, epoch)(np.arange(len(self)))
            for rows in np.array_split(order, self._steps):
                pairs = [pair for row in rows.tolist() for pair in self._pairs(row)]
                yield self._model.tokenizer.pairs(pairs, self._model.length)

    def _pairs(self, row: int) -> Iterator[Pair]:
        """The query with its positive, and then with each negative."""
        triplet = self._triplets[row]
        for document in (triplet.positive, *triplet.negatives):
            yield self._collection.queries[triplet.query], self._collection.documents[document]


class _Reranking:
    """Measures a cross-encoder on some held-out queries by re-ranking what a first stage found for them."""

    def __init__(
        self, model: CrossEncoder, collection: Collection, settings: TeacherSettings, first_stage: Run | None
    ) -> None:
        self.split, self._measure, depth = collection.split, settings.validation_measure, settings.validation_depth
        chosen = list(collection.queries)
        if len(chosen) > settings.validation_queries:
            rng = np.random.default_rng(settings.seed)
            chosen = [chosen[i] for i in sorted(rng.choice(len(chosen), settings.validation_queries, replace=False))]
        queries = {id: collection.queries[id] for id in chosen}
        self._qrels = {id: collection.qrels[id] for id in chosen}
        evaluate(Run.of({}), self._qrels, [self._measure])  # an unknown measure is an error now, not later
        if unfit := model.too_long(queries):
            problem = f"validation query leaves no room for a document in {model.length} tokens"
            raise InputError(problem, id=unfit[0], do=LONGER)
        some = Collection(collection.name, collection.split, collection.documents, queries, self._qrels)
        run = first_stage or search(some, "bm25", k=depth)
        self._found = {id: run.top(id, depth) for id in chosen}
        pairs = [(id, document) for id, found in self._found.items() for document in found]
        if not pairs:
            raise InputError("the first-stage run has none of the validation queries", do="give a run of that split")
        unknown = next((document for _, document in pairs if document not in collection.documents), None)
        if unknown is not None:
            problem = "the first-stage run has a document that is not in the collection"
            raise InputError(problem, id=unknown, do="check that run and collection belong together")
        self._pairs = [(queries[id], collection.documents[document]) for id, document in pairs]
        self.before = self._value([run.rankings[id][document] for id, document in pairs])

    def __call__(self, model: CrossEncoder) -> float:
        [scored] = model.score_blocks([self._pairs])
        return self._value(scored.scores.tolist())

    def _value(self, scores: list[float]) -> float:
        values = iter(scores)
        run = Run.of({id: dict(zip(found, values, strict=False)) for id, found in self._found.items()})
        return evaluate(run, self._qrels, [self._measure]).means[self._measure]


def _fingerprint(
    model: CrossEncoder,
    collection: Collection,
    triplets: Path,
    settings: TeacherSettings,
    validation: Collection | None,
    first_stage: Run | None,
) -> str:
    """Says what a cross-encoder is made from, so that it is not made again after a stop."""
    if not triplets.is_file():
        raise InputError("no such file", file=triplets, do="check the path")
    held_out = None if validation is None else [validation.split, len(validation.queries)]
    known = [model.fingerprint(), collection.name, collection.split, len(collection.documents), sha256(triplets)]
    known += [asdict(settings), held_out, None if first_stage is None else len(first_stage)]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()


def _made_before(out: Path, fingerprint: str) -> Trained | None:
    if not (out / OURS).is_file():
        return None
    trained = read_header(out / OURS, FORMAT, "choose another place")["trained"]
    if trained is None or trained["fingerprint"] != fingerprint:
        return None
    known = {name: trained[name] for name in Trained.__dataclass_fields__}
    return Trained(**{**known, "validations": [(step, value) for step, value in trained["validations"]]})
