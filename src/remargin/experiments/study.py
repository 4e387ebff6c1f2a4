"""The runs behind the paper's tables and figures: each is trained once, measured, and kept on disk.

    out/
      study.json              the collection, the models, the plan, with hashes
      runs/KEY/run.json       what came of a run: validations, time, energy, memory, hardware, versions
      runs/KEY/test.csv.gz    the measures of every test query; last.csv.gz those of the last model instead of the best
      runs/KEY/zero-shot/     the same on other collections
      runs/KEY/targets.csv.gz the targets of the first and last batches
      work/                   tokens, triplets and models while they are needed; may be deleted

A run that is there is not trained again, so what was stopped goes on where it was, and tables can be made anew from the
small files alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from remargin.data.collection import Collection
from remargin.data.prepare import TextSettings, prepare
from remargin.data.triplets import Triplets
from remargin.encoder import BiEncoder
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.experiments.columns import (
    file_name,
    find_column,
    judgments_hash,
    stems,
    texts_hash,
)
from remargin.experiments.full_ranking import FullRanking
from remargin.experiments.hardware import Energy, peak_memory
from remargin.experiments.plan import Plan
from remargin.experiments.results import FILE, HITS, LAST, TEST, ZERO_SHOT, ZERO_SHOT_LAST, Result
from remargin.experiments.specs import RunSpec
from remargin.experiments.targets import TargetLog
from remargin.files import locked, new_file, read_header, sha256, write_header
from remargin.losses import Similarity
from remargin.mining import MiningSettings, mine
from remargin.report.zero_shot import Column
from remargin.retrieval.search import search
from remargin.training.loop import fit
from remargin.training.settings import FitSettings, fit_settings
from remargin.training.supervision import natural_scale
from remargin.training.topics import mean_batch
from remargin.training.validation import Validator

FORMAT = "remargin-study-1"
TRAIN = "run `remargin reproduce` with --data again"
AGAIN = "choose another place, or delete it"
GRIDS = ("margins", "temperatures", "teacher_scales")
KEPT_MODELS = 24
TARGETS = "targets.csv"
QUERIES = "remargin-queries-1"
SMALL = 100_000  # documents of a collection that stays in memory
T = TypeVar("T")


def planned_before(out: Path) -> Plan | None:
    """The plan of the study in a folder, if there is one."""
    path = out / "study.json"
    return Plan.of(read_header(path, FORMAT, AGAIN)["plan"]) if path.exists() else None


class NotTrained(InputError):
    """A run that a table needs is not there, and cannot be trained without the collection and its backbone."""


class Study:
    """Trains and measures on one collection, and remembers.

    Args:
        out: the folder.
        data: the collection: needs train, dev and test queries. None reads the folder without ever training.
        models: backbones, folders or hub names, by the names that the tables give them.
        plan: how much to train.
        zero_shot: other collections, see `find_column`.
        triplets: a table of ids to train on, instead of BM25's negatives. If it has scores, they are the teacher's.
        also_test: further collections for tables 3 and 4, as TREC-DL 2020 beside 2019 in the paper.
        say: gets a line for people now and then.
        own_grids: that the plan's margins, temperatures and scales are for this time alone; the folder keeps its own.
    """

    def __init__(
        self,
        out: str | Path,
        data: str | None = None,
        models: Mapping[str, str] | None = None,
        plan: Plan | None = None,
        zero_shot: Sequence[str] = (),
        triplets: Path | None = None,
        also_test: Sequence[str] = (),
        say: Callable[[str], None] = print,
        own_grids: bool = False,
    ) -> None:
        self.out, self.data, self.say = Path(out), data, say
        self._own_grids = own_grids
        self._triplets = triplets
        self.paths = dict(models or {})
        self.work = self.out / "work"
        self._rankings: dict[tuple[str, str], FullRanking] = {}
        self._validators: dict[str, Validator] = {}
        if data is None:
            self.header = read_header(self.out / "study.json", FORMAT, "name a folder that `reproduce` wrote")
            self.plan = Plan.of(self.header["plan"])
            zero_shot, also_test = self.header["zero_shot"], self.header.get("also_test", [])
        self.columns = [find_column(column) for column in zero_shot]
        self._tests = {f"{TEST}-{file_name(c.name)}": c for c in map(find_column, also_test)}
        if data is not None:
            self.plan = plan or Plan()
            self.header = self._claim(data)

    @property
    def name(self) -> str:
        """The collection's name."""
        return str(self.header["data"])

    @property
    def models(self) -> list[str]:
        """The names of the backbones."""
        return list(self.header["models"])

    def of_models(self, make: Callable[[str], T]) -> dict[str, T]:
        """What an experiment has of each backbone; see `where_trained`. One at least has to be there."""
        found = self.where_trained(self.models, make)
        if not found:
            raise NotTrained("no backbone has all runs of this table", file=self.out, do=TRAIN)
        return found

    def where_trained(self, names: Iterable[str], make: Callable[[str], T]) -> dict[str, T]:
        """What is made for each name. Those that lack a run which cannot be trained now are left out.

        So a study that is not finished shows what it has, and a second backbone can be in some tables alone.
        """
        found = {}
        for name in names:
            try:
                found[name] = make(name)
            except NotTrained as lacking:
                self.say(f"{name} is left out: {lacking.problem}; {lacking.do}")
        return found

    @property
    def tests(self) -> dict[str, str]:
        """What to measure of every row of tables 3 and 4, and the names of these collections."""
        return {TEST: self.name} | {what: column.name for what, column in self._tests.items()}

    def lock(self) -> Any:
        """Keeps other processes out; see `locked`."""
        return locked(self.out)

    def run(self, spec: RunSpec, *wanted: str) -> Result:
        """What came of a run; it is trained and measured now if it was not before."""
        result = Result.load(self.out / "runs" / spec.key, spec)
        lacking = [what for what in wanted if result is None or what not in result.scores]
        if result is not None and not lacking:
            return result
        self.may_work(f"the run {spec.key}", spec.model)
        fitted = self.work / "fits" / spec.key
        if result is None or not (fitted / "best").exists():
            lacking += [] if result is None else list(result.scores)  # these are of a model that is no more
            (self.out / "runs" / spec.key / FILE).unlink(missing_ok=True)  # killed from here on, it counts as not done
            self._forget_models(fitted)
            result = self._train(spec, fitted)
            if (fitted / TARGETS).exists():
                with new_file(result.folder / f"{TARGETS}.gz", overwrite=True) as out:
                    out.write((fitted / TARGETS).read_bytes())
            result.save()
            shutil.rmtree(fitted / "checkpoint", ignore_errors=True)  # from here on, it is not trained again
        for what in lacking:
            self._measure(result, what, fitted / ("last" if what in (LAST, ZERO_SHOT_LAST) else "best"), spec.model)
            result.save()
        return result

    def untrained(self, model: str, *wanted: str) -> Result:
        """A backbone as it is."""
        return self._as_it_is(f"{file_name(model)}-untrained", model, wanted)

    def bm25(self, *wanted: str) -> Result:
        """BM25."""
        return self._as_it_is("bm25", None, wanted)

    def _as_it_is(self, key: str, model: str | None, wanted: Sequence[str]) -> Result:
        """What needs no training, measured."""
        folder = self.out / "runs" / key
        result = Result.load(folder, None) or Result(None, folder)
        lacking = [what for what in wanted if what not in result.scores]
        for what in lacking:
            self.may_work(key, model)
            self._measure(result, what, None if model is None else Path(self.paths[model]), model or "")
        if lacking:
            result.save()
        return result

    def best(self, specs: Sequence[RunSpec]) -> RunSpec:
        """The one whose best validation is highest."""
        return max(specs, key=lambda spec: self.run(spec).dev)

    def model(self, spec: RunSpec) -> Path:
        """The folder of a run's best model; if that is no more, of the same training again, which is not measured."""
        kept, again = (self.work / folder / spec.key / "best" for folder in ("fits", "again"))
        if not kept.exists() and not again.exists():
            self.may_work(f"the model of {spec.key}", spec.model)
            unfinished = self.work / "again" / f"{spec.key}.unfinished"
            self._train(spec, unfinished)
            shutil.rmtree(unfinished / "checkpoint", ignore_errors=True)
            unfinished.rename(again.parent)
        return kept if kept.exists() else again

    def prepared(self, model: str, taught: bool = False) -> Path:
        """The prepared collection for a backbone's tokenizer, with triplets."""
        folder = self.work / ("taught" if taught else "data") / file_name(model)
        if not folder.exists():
            encoder = BiEncoder.from_pretrained(self.paths[model])
            lengths = TextSettings(
                encoder.query_length, encoder.document_length, encoder.query_prefix, encoder.document_prefix
            )
            self.say(f"preparing {self.name} for {model}")
            prepare(self.data, self.paths[model], folder, self.triplets(taught), lengths)
        return folder

    def triplets(self, taught: bool = False) -> Path:
        """The triplets that were mined: as many as a run sees, with a teacher's scores if wanted."""
        path = self._triplets or self.work / "triplets.tsv"
        if self._triplets is None and not path.exists():
            train = Collection.load(self.data or "", "train")
            pairs = sum(sum(grade > 0 for grade in judged.values()) for judged in train.qrels.values())
            each = -(-self.plan.triplets // max(1, pairs))
            self.say(f"mining {each * pairs:,} triplets")
            mine(train, path, MiningSettings(triplets=each, depth=self.plan.negatives_depth))
        if not taught:
            return path
        from remargin.experiments.teacher import taught_triplets

        return taught_triplets(self, path)

    def settings_for(self, spec: RunSpec, similarity: Similarity, second_teacher: Path | None = None) -> FitSettings:
        """The settings of a run, for an encoder of that similarity; see `_second_teacher`."""
        plan = self.plan
        size = spec.batch_size if spec.sampler == "random" else mean_batch(spec.batch_size)
        steps = plan.steps(spec.triplets, size)
        settings = fit_settings(
            plan.preset,
            **{**spec.settings(), "teacher_scale": self._teacher_scale(spec, similarity)},
            steps=steps,
            validate_every=min(steps, plan.steps(plan.validate_every, size)),
            in_batch_teacher=None if second_teacher is None else str(second_teacher),
            validation_depth=1000,
            validation_queries=plan.validation_queries,
            log_every=min(steps, 100),
            save_every=2000 if torch.cuda.is_available() else 50,  # less than a minute or so
        )
        return replace(settings, patience=plan.patience if spec.early_stopping else None)  # not the preset's

    def _second_teacher(self, spec: RunSpec) -> Path | None:
        """Who scores pairs of a batch for a run with two teachers: the contrastive row's model, trained if need be."""
        from remargin.experiments.rows import CONTRASTIVE, choose

        if not (spec.target == "teacher" and spec.in_batch):
            return None
        return self.model(choose(self, spec.model, CONTRASTIVE).spec)

    def _teacher_scale(self, spec: RunSpec, similarity: Similarity) -> float | None:
        """What a teacher's margins are multiplied with; None is what `fit` takes of itself."""
        if spec.teacher_scale == 1.0:
            return None
        triplets = Triplets(self.prepared(spec.model, spec.taught) / "triplets")
        return spec.teacher_scale * natural_scale(triplets, similarity)

    def _train(self, spec: RunSpec, folder: Path) -> Result:
        data, second_teacher = self.prepared(spec.model, spec.taught), self._second_teacher(spec)
        model = BiEncoder.from_pretrained(self.paths[spec.model], seed=spec.seed)
        settings = self.settings_for(spec, model.similarity, second_teacher)
        validator = self._validator(spec.model)
        targets = TargetLog(folder / TARGETS, model.similarity) if spec.target == "distributed" else None
        resumed = (folder / "checkpoint").exists()  # then the energy before is not known
        with Energy() as energy, targets or nullcontext():
            peak_memory(reset=True)
            fitted = fit(
                model,
                data,
                folder,
                spec.loss(model.similarity),
                settings,
                validator,
                resume=True,
                say=lambda line: None,
                observe=targets,
            )
        result = Result(
            spec,
            self.out / "runs" / spec.key,
            curve=fitted.validations,
            steps=fitted.steps,
            triplets=fitted.triplets,
            best_step=fitted.best_step or 0,
            best_triplets=fitted.best_triplets or 0,
            seconds=round(fitted.seconds, 2),
            joules=None if resumed else energy.joules,
            peak_bytes=peak_memory(),
        )
        result.folder.mkdir(parents=True, exist_ok=True)
        when = f"at step {result.best_step} of {result.steps}" if result.best_step else "at most, and less than before"
        self.say(
            f"{spec.key}, rate {spec.rate:g}, seed {spec.seed}: dev {result.dev:.4f} {when}, {result.seconds:.0f} s"
        )
        return result

    def _measure(self, result: Result, what: str, model: Path | None, label: str) -> None:
        """Full rankings by a model, or by BM25 without one, and the scores of every query."""
        result.scores[what] = {}
        encoder = None if model is None else BiEncoder.from_pretrained(model)
        sources = {f"{what}.csv.gz": (self.data or "", "test")}
        if what in self._tests:
            sources = {f"{what}.csv.gz": (self._tests[what].parts[0], self._tests[what].split)}
        if what in (ZERO_SHOT, ZERO_SHOT_LAST):
            sources = {
                f"{what}/{stem}.csv.gz": (part, column.split)
                for column in self.columns
                for part, stem in zip(column.parts, stems(column), strict=True)
            }
        for name, (data, split) in sources.items():
            evaluation = self._ranking(data, split).measure(encoder, label)
            path = result.folder / name
            evaluation.save(path, overwrite=True)
            result.scores[what][name] = sha256(path)

    def _ranking(self, data: str, split: str) -> FullRanking:
        """All documents of a collection; large ones, but for the study's own, are read anew each time."""
        if (data, split) in self._rankings:
            return self._rankings[data, split]
        own = data == self.data or any(data in column.parts for column in self._tests.values())
        collection = Collection.load(data, split, skip_bad=not own)
        if collection.rejects.count:
            self.say(f"{data}: skipped bad input, {collection.rejects.describe()}")
        ranking = FullRanking(collection, self.plan.relevant if own else 1)
        if data == self.data or len(collection.documents) <= SMALL:
            self._rankings[data, split] = ranking
        return ranking

    def _validator(self, model: str) -> Validator:
        """The same dev queries for every run, whatever its seed."""
        if model not in self._validators:
            settings = fit_settings(validation_depth=1000, validation_queries=self.plan.validation_queries)
            self._validators[model] = Validator(self.prepared(model), "dev", settings, self.first_stage, also=[HITS])
        return self._validators[model]

    @cached_property
    def first_stage(self) -> Run:
        """BM25's documents for the dev queries."""
        return search(Collection.load(self.data or "", "dev"), "bm25", k=1000)

    def stems(self, column: Column) -> list[str]:
        """The names of the files that have a column's scores. An older study does not know them."""
        known: dict[str, list[str]] = self.header.get("stems", {})
        return known.get(column.name) or stems(column)

    def require_several_queries(self) -> None:
        """Systems are compared query by query, which takes two at least: better said before training than after."""
        tests = [(self.data or "", TEST), *((column.parts[0], column.split) for column in self._tests.values())]
        for data, split in tests:
            if len(self._ranking(data, split).collection.queries) < 2:
                do = "choose another collection: systems are compared query by query"
                raise InputError(f"one judged query in split {split!r}", file=data, do=do)

    def queries(self) -> dict[str, str]:
        """The texts of the test queries, from the collection or as they were when it was last at hand; else none."""
        kept = self.work / "queries.json"
        if self.data is not None:
            queries = self._ranking(self.data, "test").collection.queries
            write_header(kept, {"format": QUERIES, "texts": queries})
            return queries
        return read_header(kept, QUERIES, f"delete {kept}")["texts"] if kept.exists() else {}

    def _forget_models(self, but: Path) -> None:
        """Only so many models are kept."""
        old = sorted((f for f in (self.work / "fits").glob("*") if f != but), key=lambda f: f.stat().st_mtime)
        for folder in old[: max(0, len(old) - KEPT_MODELS + 1)]:
            shutil.rmtree(folder)

    def may_work(self, what: str, model: str | None = None) -> None:
        """See that something can be trained or measured: with the collection, and a backbone if it needs one."""
        if self.data is None:
            raise NotTrained(f"{what} is not there", file=self.out, do=TRAIN)
        if model is not None and model not in self.paths:
            raise NotTrained(f"{what} is not there", file=self.out, do=f"name its backbone: --model {model}=PATH")

    def _claim(self, data: str) -> dict[str, Any]:
        """Make the folder this study's own, or see that it is."""
        for name in self.paths:
            if not file_name(name):
                raise InputError(f"a model cannot be called {name!r}", do="name it otherwise: --model NAME=PATH")
        for further in self._tests.values():
            if len(further.parts) > 1:
                raise InputError(f"{further.name} has several parts", do="test on one collection")
        column = find_column(data)
        names = [file_name(c.name) for c in (column, *self.columns)]
        if twice := [name for name in names if names.count(name) > 1]:
            do = "give each collection its own name: --zero-shot NAME=DATA"
            raise InputError(f"two collections are called {twice[0]!r}", do=do)
        header = {
            "format": FORMAT,
            "data": column.name,
            "judgments": {split: judgments_hash(data, split) for split in ("train", "dev", "test")},
            "texts": texts_hash(data),
            "models": {name: BiEncoder.from_pretrained(path).fingerprint() for name, path in self.paths.items()},
            "zero_shot": [column.name for column in self.columns],
            "stems": {column.name: stems(column) for column in self.columns},
            "also_test": [column.name for column in self._tests.values()],
            "triplets": None if self._triplets is None else sha256(self._triplets),
            "plan": json.loads(json.dumps(asdict(self.plan))),
        }
        path = self.out / "study.json"
        self.out.mkdir(parents=True, exist_ok=True)
        with self.lock():
            if path.exists():
                before = read_header(path, FORMAT, AGAIN)
                for name in ("zero_shot", "stems", "also_test"):  # not every experiment needs them
                    header[name] = header[name] or before.get(name, header[name])
                    before[name] = before.get(name) or header[name]
                before.setdefault("texts", header["texts"])  # an older study does not know
                different = [name for name in header if name not in ("models", "plan") and header[name] != before[name]]
                plan, plan_before = header["plan"], before["plan"]
                if self._own_grids:
                    plan |= {name: plan_before[name] for name in GRIDS}
                different += [f"plan ({name})" for name in plan if plan[name] != plan_before.get(name, plan[name])]
                different += [f"model {m}" for m, f in header["models"].items() if before["models"].get(m, f) != f]
                if different:
                    raise InputError(f"was made with another {' and another '.join(different)}", file=path, do=AGAIN)
                header["models"] = before["models"] | header["models"]
            write_header(path, header)
        return header
