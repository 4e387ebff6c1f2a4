"""What the runs of a study train and validate on: made when it is first needed, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from remargin.data.collection import Collection
from remargin.data.preparation import prepare
from remargin.evaluation.runs import Run
from remargin.files.parts import remove_parts
from remargin.mining.negatives import mine
from remargin.model.encoder import PAPER_LENGTHS, BiEncoder
from remargin.retrieval.searching import search
from remargin.study.columns import file_name
from remargin.study.first_stage import load_first_stage
from remargin.study.pinned import MINING, SECOND_ROUND, pinned
from remargin.study.plan import DEV, Plan
from remargin.study.results import HITS
from remargin.study.specs import RunSpec
from remargin.study.teacher import Teacher
from remargin.training.validation import Validator

FIRST_STAGE = 1000  # BM25's documents for a validation query, of which the plan says how many are re-ranked
Miner = Callable[[], BiEncoder]  # loads or makes the model that mines


class TrainingSet:
    """A collection with triplets, for each backbone's tokenizer, and with a teacher's scores if they are wanted.

    Args:
        name: what people call the collection.
        data: the collection.
        backbones: folders or hub names, by the names that the tables give them.
        plan: how many triplets are mined, and how many dev queries validate.
        work: where all is kept.
        teacher: scores triplets when that is first asked for.
        triplets: a table of ids, instead of BM25's negatives. If it has scores, they are the teacher's.
        first_stage: a run of the validation queries, to re-rank instead of BM25's; see `load_first_stage`.
        say: gets a line for people now and then.
    """

    def __init__(
        self,
        name: str,
        data: str,
        backbones: Mapping[str, str],
        plan: Plan,
        work: Path,
        teacher: Teacher,
        triplets: Path | None,
        say: Callable[[str], None],
        first_stage: Path | None = None,
    ) -> None:
        self.name, self.data, self.backbones = name, data, backbones
        self.plan, self.work, self.say = plan, work, say
        self._teacher, self._given, self._run = teacher, triplets, first_stage
        self._validators: dict[str, Validator] = {}

    def prepared(self, model: str, taught: bool = False) -> Path:
        """The folder with the collection's tokens and triplets for a backbone."""
        return self._prepared(model, "taught" if taught else "data", lambda: self.triplets(taught))

    def prepared_for(self, spec: RunSpec, miner: Miner | None = None) -> Path:
        """The folder that a run trains on. To make that of a second round, the model of the first one mines."""
        if spec.negatives == 1 and not spec.second_round:
            return self.prepared(spec.model, spec.taught)
        assert not spec.taught, "a teacher scores one negative, of the first round"
        kind = f"{_several(spec.negatives)}{f'-{spec.key}' if spec.second_round else ''}"

        def triplets() -> Path:
            assert miner is not None or not spec.second_round, f"{spec.key} needs the model of its first round"
            return self._mined(kind, spec.negatives, miner if spec.second_round else None)

        return self._prepared(spec.model, f"data{kind}", triplets)

    def _prepared(self, model: str, kind: str, triplets: Callable[[], Path]) -> Path:
        folder = self.work / kind / file_name(model)
        if not folder.exists():
            texts = BiEncoder.from_pretrained(self.backbones[model], lengths=PAPER_LENGTHS).text_settings
            self.say(f"preparing {self.name} for {model}")
            prepare(self.data, self.backbones[model], folder, triplets(), **asdict(texts))
        return folder

    def triplets(self, taught: bool = False) -> Path:
        """The triplets as a table: as many as a run sees, with the teacher's scores if wanted."""
        path = self._given or self._mined()
        return self._teacher.scored(path, self._first_stage_of_dev) if taught else path

    def _mined(self, kind: str = "", negatives: int = 1, miner: Miner | None = None) -> Path:
        path = self.work / f"triplets{kind}.tsv"
        remove_parts(path)
        if not path.exists():
            train = Collection.load(self.data, "train")
            pairs = sum(sum(grade > 0 for grade in judged.values()) for judged in train.qrels.values())
            each = -(-self.plan.triplets // max(1, pairs))
            self.say(f"mining {each * pairs:,} triplets")
            how = {**MINING, "depth": self.plan.negatives_depth, "per_triplet": negatives}
            if miner is not None:
                how |= {**SECOND_ROUND, "model": miner()}
            mine(train, path, triplets=each, **how)
        return path

    def validator(self, model: str) -> Validator:
        """The same queries for every run, whatever its seed."""
        if model not in self._validators:
            plan = self.plan
            depth = None if plan.full_validation else plan.validation_depth
            settings = pinned(validation_depth=depth, validation_queries=plan.validation_queries)
            first_stage = None if plan.full_validation else self.first_stage
            self._validators[model] = Validator(
                self.prepared(model), plan.validation_split, settings, first_stage, also=[HITS], relevant=plan.relevant
            )
        return self._validators[model]

    @cached_property
    def first_stage(self) -> Run:
        """The documents of the validation queries that are re-ranked: of the run that was given, or BM25's."""
        return self._bm25(self.plan.validation_split) if self._run is None else load_first_stage(self._run)

    def _first_stage_of_dev(self) -> Run:
        """What validates the teacher, which is never chosen on the queries that tables report."""
        return self.first_stage if self.plan.validation_split == DEV else self._bm25(DEV)

    def _bm25(self, split: str) -> Run:
        return search(Collection.load(self.data, split), "bm25", k=FIRST_STAGE)


def _several(negatives: int) -> str:
    """What names of files have behind them if there are several negatives in a triplet."""
    return "" if negatives == 1 else f"-{negatives}"
