"""What came of a training run, on queries that it never saw: BM25, the encoder before and after, and both fused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from remargin.evaluation.measures import DEFAULT_MEASURES, Evaluation, evaluate
from remargin.evaluation.runs import Run
from remargin.evaluation.significance import Interval, bootstrap, paired_bootstrap
from remargin.model.encoder import BiEncoder
from remargin.reports.dimensions import OverDims, dims_line
from remargin.reports.moves import Move, move_lines, moves, summed_up
from remargin.retrieval.hybrid import Fusion
from remargin.training.validation import RANKED, Validator

BM25, BEFORE, AFTER, HYBRID = "bm25", "before", "after", "hybrid"


@dataclass(frozen=True)
class Outcome:
    """Rankings of one split's queries by every system, measured.

    Attributes:
        split: whose queries were ranked; results are those of a test split, for dev has chosen something.
        ranked: which documents they ranked, in words.
        runs: by system: bm25, before, after, and hybrid if there is a fusion.
        evaluations: by system.
        moved: queries whose first relevant document has another rank after training, the largest gains first.
        dims: the first measure by dimension, if the model was trained for truncated vectors.

    Example:
        >>> scores = {"q1": {"a": 1.0, "b": 0.5}, "q2": {"b": 1.0, "a": 0.5}}
        >>> runs = {"before": Run.of(scores), "after": Run.of({**scores, "q2": {"a": 1.0}})}
        >>> outcome = Outcome.of("test", "ranked in full (2 documents)", runs, {"q1": {"a": 1}, "q2": {"a": 1}}, ["RR"])
        >>> outcome.gain("RR").mean
        0.25
    """

    split: str
    ranked: str
    runs: Mapping[str, Run] = field(repr=False)
    evaluations: Mapping[str, Evaluation] = field(repr=False)
    moved: Sequence[Move] = field(default=(), repr=False)
    dims: OverDims | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        split: str,
        ranked: str,
        runs: Mapping[str, Run],
        qrels: Mapping[str, Mapping[str, int]],
        measures: Sequence[str] = DEFAULT_MEASURES,
    ) -> Outcome:
        """Measure the runs."""
        measured = {system: evaluate(run, qrels, measures) for system, run in runs.items()}
        return cls(split, ranked, runs, measured)

    @classmethod
    def measure(
        cls, validator: Validator, start: BiEncoder, model: BiEncoder, bm25: Run | None, fusion: Fusion | None
    ) -> Outcome:
        """Rank a split's queries by the encoder before and after training, and by the latter and BM25 fused."""
        runs = {} if bm25 is None else {BM25: bm25}
        before, after = validator.encode(start), validator.encode(model)
        runs |= {BEFORE: validator.ranked(before, RANKED), AFTER: validator.ranked(after, RANKED)}
        if fusion is not None and bm25 is not None:
            runs[HYBRID] = fusion.fuse(bm25, runs[AFTER])
        texts = validator.collection.documents, validator.collection.queries
        measured = cls.of(validator.split, validator.describe(), runs, validator.qrels)
        moved = moves(runs[BEFORE], runs[AFTER], validator.qrels, *texts)
        return replace(measured, moved=moved, dims=_over_dims(validator, before, after, model))

    @property
    def measures(self) -> list[str]:
        """The names of the measures."""
        return list(next(iter(self.evaluations.values())).per_query)

    @property
    def queries(self) -> int:
        """How many were measured."""
        return len(next(iter(self.evaluations[BEFORE].per_query.values())))

    def mean(self, system: str, measure: str) -> Interval:
        """A measure's mean over the queries, with its 95% bootstrap interval."""
        return bootstrap(list(self.evaluations[system].per_query[measure].values()))

    def gain(self, measure: str, system: str = AFTER) -> Interval:
        """What a system has over the encoder before training, query by query, with its 95% bootstrap interval."""
        after, before = self.evaluations[system], self.evaluations[BEFORE]
        return paired_bootstrap(after.per_query[measure], before.per_query[measure])

    def plain(self) -> dict[str, Any]:
        """All of it as JSON has it: means and intervals of every system, and of the gain."""
        rows = {name: {m: self.mean(name, m)._asdict() for m in self.measures} for name in self.evaluations}
        rows["gain"] = {measure: self.gain(measure)._asdict() for measure in self.measures}
        moved = {"moved": summed_up(self.moved)} if self.moved else {}
        about = {"split": self.split, "ranked": self.ranked, "queries": self.queries}
        return {**about, "systems": rows, **moved, **({} if self.dims is None else {"dims": self.dims})}

    def lines(self) -> list[str]:
        """For people: a table with a row for each system, then the gain of training; and what rose and fell."""
        rows = {name: [self.mean(name, measure) for measure in self.measures] for name in self.runs}
        rows["gain"] = [self.gain(measure) for measure in self.measures]
        head = f"{self.split}: {self.queries:,} queries, {self.ranked}, with 95% intervals"
        names = f"{'':<8}" + "".join(f"{measure:>26}" for measure in self.measures)
        cells = {name: [f"{c.mean:.3f} ({c.low:.3f}, {c.high:.3f})" for c in row] for name, row in rows.items()}
        table = [f"{name:<8}" + "".join(f"{cell:>26}" for cell in row) for name, row in cells.items()]
        truncated = [] if self.dims is None else [dims_line(self.dims)]
        return [head, names, *table, *truncated, *move_lines(summed_up(self.moved))]

    def save_runs(self, folder: Path) -> None:
        """Write a run file of every system, for `compare` and `evaluate`."""
        for name, run in self.runs.items():
            run.save(folder / f"{name}.trec.gz", tag=name, overwrite=True)


def _over_dims(validator: Validator, before: Tensor, after: Tensor, model: BiEncoder) -> OverDims | None:
    """The validator's measure at each dimension that the model was trained for, by slices of vectors that are there."""
    if len(model.trained_dims) < 2:
        return None
    dims, cosine = sorted(model.trained_dims, reverse=True), model.similarity == "cosine"

    def means(vectors: Tensor) -> list[float]:
        whole, *smaller = (vectors[:, :size] for size in dims)
        cut = [nn.functional.normalize(part, dim=1) if cosine else part for part in smaller]
        runs = (validator.ranked(part) for part in (whole, *cut))
        return [evaluate(run, validator.qrels, [validator.measure]).means[validator.measure] for run in runs]

    return {"measure": validator.measure, "dims": dims, "before": means(before), "after": means(after)}
