"""What `fit` measures around training: the blend that dev chooses, the fusion with BM25, test figures, forgetting."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from remargin.data.collection import Collection, has_queries, open_source
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.mining.false_negatives import suspicious
from remargin.model.backbone import longest_input
from remargin.model.blend import blended, similarity_trained
from remargin.model.encoder import BiEncoder
from remargin.model.lora import FOLDER as ADAPTER
from remargin.model.lora import save_scaled
from remargin.model.tokenizer import TextSettings
from remargin.reports.blend_file import BlendPath, path_words, save_path
from remargin.reports.run_files import write_report
from remargin.reports.suspicious import FILE as SUSPICIOUS_FILE
from remargin.reports.suspicious import write_suspicious
from remargin.retrieval.hybrid import Fusion, choose_fusion, save_fusion
from remargin.training.advice import advice
from remargin.training.away import Away, AwayMeasured, AwayOutcome
from remargin.training.blending import Elsewhere, blend_path, points_for
from remargin.training.data_look import DataLook
from remargin.training.loop import Fitted
from remargin.training.outcome import BM25, Outcome
from remargin.training.request import Request
from remargin.training.settings import FitSettings
from remargin.training.validation import RANKED, Validator, affordable_characters, affordable_documents

FEWEST_QUERIES = 30  # of dev, to choose a weight by: with fewer, the best of several is noise
UNCHOSEN_WEIGHT = 0.5  # of the trained model, where dev has fewer
SUSPICIOUS_AMONG = 200  # queries, whose texts are encoded once more
TEST_SHARE = 4  # test is ranked twice, dev at every point of the path: so many times as many documents are
MODEL, TEST = "model", "test"  # the folders of the model to use, and of the run files


@dataclass
class Fit(Fitted):
    """The outcome of `fit`: that of the training run, and what was made of it.

    Attributes:
        weight: of the trained weights in the model; the starting weights have the rest.
        path: what was measured on dev to choose it.
        fusion: what dev says of the model and BM25, fused.
        no_fusion: why there is none, if that needs a word.
        outcome: BM25, the encoder before and after training and the fusion, on queries that chose nothing (test), if
            the collection has some, else on dev.
        away: what training cost elsewhere.
    """

    weight: float = 1.0
    path: BlendPath | None = field(default=None, repr=False)
    fusion: Fusion | None = field(default=None, repr=False)
    no_fusion: str | None = None
    outcome: Outcome | None = field(default=None, repr=False)
    away: AwayOutcome | None = field(default=None, repr=False)

    @property
    def measure(self) -> str | None:
        """The measure of `before` and `best`; None if nothing was measured on dev."""
        return super().measure if self.path is None else self.path.measure

    def lines(self) -> list[str]:
        """What came of it, for people: what dev chose, the figures, and what it cost elsewhere."""
        lines = [] if self.path is None else [path_words(replace(self.path, away=None))]  # which has a line below
        if self.fusion is not None:
            used = "`index` will hold both" if self.fusion.pays else "not enough to pay"
            gain = f"{self.fusion.measure} {self.fusion.bm25:.3f} and {self.fusion.dense:.3f} alone"
            gain += f", {self.fusion.fused:.3f} fused"
            weight = f"weight {self.fusion.weight:g}"
            lines.append(f"Hybrid of BM25 and the model, {weight} chosen on {self.fusion.split}: {gain} there; {used}.")
        elif self.no_fusion is not None:
            lines.append(f"No hybrid of BM25 and the model: {self.no_fusion}.")
        if self.outcome is not None:
            lines += self.outcome.lines()
            if BM25 not in self.outcome.runs:
                lines.append("There is no row of BM25: it is not installed, or the documents have no words for it.")
            if self.outcome.split != TEST:
                lines.append(f"There is no test split: {self.outcome.split} also made choices, and flatters them.")
            elif TEST in (made.split for made in (self.path, self.fusion) if made is not None):
                lines.append("The test split also made choices, as --validation-split, and flatters them.")
        if self.away is not None:
            lines.append(self.away.line())
        return lines


class Measuring:
    """Measures models of one training run: on dev to choose, on test to report, elsewhere to see what it forgets.

    Args:
        asked: what `fit` was asked for.
        data: what `prepare` made of the collection: read again and again, it stays as it is and is at hand.
        settings: of the training run.
        start: the encoder before training.
        texts: lengths and prefixes in training.
        dev: the split to choose on, if there is one.
        first_stage: a run of its queries, to re-rank.
        away: where to measure forgetting, if anywhere.
    """

    def __init__(
        self,
        asked: Request,
        data: Path,
        settings: FitSettings,
        start: BiEncoder,
        texts: TextSettings,
        dev: str | None,
        first_stage: Run | None,
        away: Away | None,
    ) -> None:
        self._asked, self._data, self._settings, self._start, self._away = asked, data, settings, start, away
        self._texts, self._first_stage, self._dev_split = texts, first_stage, dev
        self._words: Any = {"language": asked.language}
        self.truncates = False  # until a collection is too long to be split into passages

    @cached_property
    def dev(self) -> Validator | None:
        """Dev's queries and the documents that they rank."""
        if self._dev_split is None:
            return None
        collection = Collection.load(self._data, self._dev_split)
        options: Any = {"passages": self._splits(collection), **self._words}
        return Validator.of(collection, self._start, self._settings, self._first_stage, **options)

    @cached_property
    def test(self) -> Validator | None:
        """All test queries and the documents that they rank, or dev's if there are none; None for the paper's presets,
        whose figures `reproduce` makes.
        """
        if self._asked.of_the_paper:
            return None
        if self._dev_split == TEST or not has_queries(open_source(self._data), TEST):
            return self.dev
        collection = Collection.load(self._data, TEST)
        everything: Any = {"validation_depth": None, "validation_documents": TEST_SHARE * affordable_documents()}
        settings = replace(self._settings, validation_queries=len(collection.queries), **everything)
        return Validator.of(
            collection, self._start, settings, also=["R@100", "RR"], passages=self._splits(collection), **self._words
        )

    def _splits(self, collection: Collection) -> bool:
        """Whether long documents are split into passages, as `search` does. Where there is much text, they are cut:
        dev is encoded at every point of the path, and passages may be several times as many tokens.
        """
        characters = sum(map(len, collection.documents.values()))
        self.truncates = not self._asked.of_the_paper and characters > affordable_characters()
        return not self._asked.of_the_paper and not self.truncates

    def while_training(self) -> Validator | None:
        """What validates while training. With blending, dev is measured afterwards, unless it is asked for."""
        if self._dev_split is None or not (self._asked.watched or self._asked.blend == "off"):
            return None
        if self._texts == self._start.text_settings:
            return self.dev
        collection = Collection.load(self._data, self._dev_split)
        return Validator.of(collection, self._as_trained(), self._settings, self._first_stage, **self._words)

    @property
    def tokens(self) -> int:
        """How many tokens are encoded after training, about: for an estimate of the time."""
        dev, test = (0 if validator is None else validator.tokens for validator in (self.dev, self.test))
        away = 0 if self._away is None else self._away.tokens(self._start)
        points = 2 if self.dev is None or self.fixed_weight()[0] is not None else len(points_for(self.dev, self._start))
        return points * (dev + away) + dev + 2 * test

    def fixed_weight(self) -> tuple[float | None, str | None]:
        """The weight of the trained model where dev does not choose it, and why, if that needs a word."""
        if self._asked.weight is not None:
            return self._asked.weight, None
        if self.dev is None:
            return 1.0, "no dev split: nothing is chosen, and the trained model is kept as it is"
        if not similarity_trained(self._asked.model):
            return 1.0, "no blending: the start was not trained to encode texts, so there is nothing to go back to"
        if len(self.dev.queries) < FEWEST_QUERIES:
            few = f"{len(self.dev.queries)} dev queries are too few to choose by"
            return UNCHOSEN_WEIGHT, f"{few}: the model will be half trained and half starting weights (--blend)"
        return None, None

    def keep(self, learner: BiEncoder, trained: Fitted) -> Fit:
        """Make the model to use from the trained one, write it, and measure what came of it."""
        out, elsewhere = self._asked.out, _Along(self._away)
        if self._asked.blend == "off" and trained.best is not None:
            learner = BiEncoder.from_pretrained(trained.model, precision=self._start.precision)
        learner = self._as_searched(learner)
        path, (weight, _) = None, self.fixed_weight()
        if self.dev is not None and not (self._asked.blend == "off" and trained.validations):
            away = None if self._away is None else Elsewhere(self._away.what, self._away.by, elsewhere)
            path = blend_path(self._start, learner, self.dev, away=away, weight=weight)
            save_path(out, path)
            weight = path.weight
        assert weight is not None
        model = blended(self._start, learner, weight)
        fusion = self._fuse(model)
        model.save(out / MODEL, overwrite=True)
        if self._settings.lora is not None:
            save_scaled(trained.model / ADAPTER, weight, out / MODEL / ADAPTER)
        if fusion is not None:
            save_fusion(out / MODEL, fusion)
        self._list_suspicious(model)
        outcome = None if self.test is None else self._outcome(self.test, model, fusion)
        at = None if path is None else path.points.index(weight)
        away_outcome = elsewhere.between(self._start, model) if at is None else elsewhere.outcome(at)
        fitted = {**vars(trained), "model": out / MODEL}
        if path is not None:
            fitted |= {"before": path.at(0), "best": path.at(weight)}
        measured: dict[str, Any] = {"path": path, "fusion": fusion, "outcome": outcome, "away": away_outcome}
        return Fit(**fitted, weight=weight, no_fusion=self._too_few_to_fuse(), **measured)

    def _list_suspicious(self, model: BiEncoder) -> None:
        """Write the mined negatives that the model scores like their positive, of some queries, for people to read."""
        triplets = self._asked.out / "triplets.tsv"
        if not triplets.exists() or self._asked.of_the_paper:
            return
        options: Any = {"split": "train", "skip_bad": self._asked.skip_bad, "seed": self._settings.seed}
        with _said_before():
            listed = suspicious(self._data, triplets, model, queries=SUSPICIOUS_AMONG, **options)
        write_suspicious(self._asked.out / SUSPICIOUS_FILE, listed)

    def report(self, fitted: Fit, seen: DataLook) -> None:
        """Write run files and report.json."""
        if fitted.outcome is not None:
            folder = self._asked.out / TEST
            folder.mkdir(exist_ok=True)
            fitted.outcome.save_runs(folder)
        left_out = ("path", "no_fusion", "fusion", "outcome", "away")
        report: dict[str, Any] = {name: value for name, value in vars(fitted).items() if name not in left_out}
        report |= {"model": MODEL, "data": asdict(seen)}
        report |= {name: asdict(value) for name in ("fusion", "away") if (value := getattr(fitted, name)) is not None}
        if fitted.outcome is not None:
            report["outcome"] = fitted.outcome.plain()
        write_report(self._asked.out, report)

    def advice(self, fitted: Fit, seen: DataLook) -> list[str]:
        """What to try if training did not help on dev, and what the model is then."""
        lines = advice(
            self._settings.validation_measure,
            fitted.before,
            fitted.best,
            pairs=seen.pairs,
            steps=fitted.steps,
            learning_rate=fitted.learning_rate,
            validations=len(fitted.validations),
            blends=[] if fitted.path is None else fitted.path.points[1:],
            document_length=self._start.document_length if self._could_read_more() else None,
            truncated=seen.truncated_share,
            unlikely=seen.unlikely_share,
            split=self._dev_split or "dev",
        )
        unchanged = f"{fitted.model} has the starting weights, unchanged"
        return [*lines, unchanged] if fitted.weight == 0 else lines

    def _could_read_more(self) -> bool:
        """Whether training could read documents of twice the length: neither cut short on purpose nor by positions."""
        longest, length = longest_input(self._start.backbone), self._start.document_length
        return self._texts.document_length == length and (longest is None or 2 * length <= longest)

    def _as_trained(self) -> BiEncoder:
        """The start with the lengths that it is trained with."""
        model = copy.deepcopy(self._start)
        model.query_length, model.document_length = self._texts.query_length, self._texts.document_length
        return model

    def _as_searched(self, model: BiEncoder) -> BiEncoder:
        """A trained model with the lengths that it is searched with, which may be longer than in training."""
        model.query_length, model.document_length = self._start.query_length, self._start.document_length
        return model.eval()

    def _fuse(self, model: BiEncoder) -> Fusion | None:
        """The weight of BM25 and the model that dev chooses; None without dev, with few queries, or without BM25.

        Nor is it chosen on re-ranked documents: searches fuse what each of the two finds among all.
        """
        if self.dev is None or self._asked.of_the_paper or self.dev.reranks or self._too_few_to_fuse():
            return None
        bm25 = _by_bm25(self.dev)
        if bm25 is None or not any(bm25.rankings.values()):
            return None
        dense, measure = self.dev.rank(model, RANKED), self.dev.measure  # as deep as searches will rank
        named: Any = {"data": self._asked.data, "split": self.dev.split, "language": self.dev.language}
        return choose_fusion(bm25, dense, self.dev.qrels, measure, **named)

    def _too_few_to_fuse(self) -> str | None:
        """Why no weight of a fusion is chosen, if dev has too few queries for that."""
        if self.dev is None or self._asked.of_the_paper or len(self.dev.queries) >= FEWEST_QUERIES:
            return None
        return f"{len(self.dev.queries)} dev queries are too few to choose its weight by (`index --hybrid` sets one)"

    def _outcome(self, test: Validator, model: BiEncoder, fusion: Fusion | None) -> Outcome:
        return Outcome.measure(test, self._start, model, _by_bm25(test), fusion)


def _by_bm25(validator: Validator) -> Run | None:
    """BM25's rankings; None if it is not installed, or the documents have no words, which training does not need."""
    if find_spec("bm25s") is None:
        return None
    try:
        return validator.rank_by_bm25()
    except InputError:
        return None


@contextmanager
def _said_before() -> Iterator[None]:
    """Without the encoder's warnings about truncated texts, which the look at the data gave for all of them."""
    log = logging.getLogger("remargin.model.encoder")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


class _Along:
    """What is measured elsewhere along the path from start to end."""

    def __init__(self, away: Away | None) -> None:
        self._away, self.measured = away, list[AwayMeasured]()

    def __call__(self, model: BiEncoder) -> float:
        assert self._away is not None
        self.measured.append(self._away.measure(model))
        return self._away.compare(self.measured[0], self.measured[-1]).after

    def outcome(self, at: int) -> AwayOutcome | None:
        """What became of the start, which was measured first, at a point of the path."""
        return None if self._away is None else self._away.compare(self.measured[0], self.measured[at])

    def between(self, start: BiEncoder, model: BiEncoder) -> AwayOutcome | None:
        """What became of the start in another model."""
        if self._away is None:
            return None
        return self._away.compare(self._away.measure(start), self._away.measure(model))
