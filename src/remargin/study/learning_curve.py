"""Would more data help? Training runs on growing shares of the training queries: what `remargin curve` does."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from remargin.data.collection import Collection
from remargin.data.tables import Rejects
from remargin.data.triplets import TripletText, read_id_triplets, triplets_hash
from remargin.errors import InputError
from remargin.evaluation.measures import evaluate, require_measures
from remargin.files.atomic import is_scratch, locked, new_file, remove_left, resolved
from remargin.files.hashes import texts_fingerprint
from remargin.files.headers import read_header, write_header
from remargin.files.parts import remove_parts
from remargin.files.shapes import Check
from remargin.mining.recipe import RECIPE, mine_for_training
from remargin.mining.settings import MiningSettings
from remargin.model.encoder import BiEncoder
from remargin.progress import tell
from remargin.retrieval.searching import search
from remargin.study.growth import Curve, Trained, curve_json, curve_section, grown
from remargin.training.fitting import fit
from remargin.training.request import OF_THE_PAPER, resolve_settings

ASKED, CURVE, TRIPLETS, BEFORE = "asked.json", "curve.json", "triplets.tsv", "before.json"
ASKED_FORMAT, CURVE_FORMAT, SCORES_FORMAT = "remargin-curve-asked-1", "remargin-curve-1", "remargin-curve-scores-1"
OWN = {
    "settings": "single settings by their names",
    "seed": "--seeds",
    "resume": "nothing: finished fits are kept",
    "rounds": "--triplets that a model mined: all shares have the same",
}
OTHER_PLACE = "choose another place, or delete it"
ORDER = 0  # the seed of the order in which training queries are taken


class AskedHeader(TypedDict):
    """What a curve is about: hashes of the input, the measure, and the options of the training runs."""

    format: str
    input: dict[str, str]
    measure: str
    options: dict[str, Any]


Score = Annotated[float, Check("a value of a measure", lambda value: abs(value) < 1e9)]


class ScoresHeader(TypedDict):
    """The measure of each test query."""

    format: str
    scores: dict[str, Score]


def curve(
    data: str | Path,
    model: str | Path,
    out: str | Path,
    shares: Sequence[float] = (0.1, 0.33, 1.0),
    seeds: Sequence[int] = (0, 1, 2),
    measure: str = "nDCG@10",
    triplets: str | Path | None = None,
    skip_bad: bool = False,
    say: Callable[[str], None] = tell,
    **options: Any,
) -> Curve:
    """Fine-tune on growing shares of the training queries, and say whether more data would help.

    Negatives are mined once. Each share contains the smaller ones. For each share and seed, `fit` trains from the same
    model with the same options, and the result is measured on the whole test split. If interrupted, the same call
    continues; other shares and seeds can be added later. The folder:

        curve.json                  the numbers and the verdict
        section.json, tables.md, figures/   what `remargin report` shows
        triplets.tsv                the mined triplets, if none were given
        runs/SHARE/seed-SEED/       each training run: model, metrics, report; its data and checkpoint are deleted
        runs/SHARE/seed-SEED.json   its score for each test query

    Args:
        data: the collection, as `Collection.load` takes it: needs train and test queries.
        model: the encoder to start from: a folder, or a name of the Hugging Face hub.
        out: the folder for the results.
        shares: of the training queries, two or more.
        seeds: one training run for each, on every share.
        measure: by its ir_measures name.
        triplets: a table of ids, as `mine` writes it, or "irds:NAME". Without it, triplets are mined with BM25.
        skip_bad: leave bad input out, and count it.
        say: called with progress messages.
        **options: further options of `fit`: steps, target, batch_size, ...

    Raises:
        InputError: for bad input, options that `fit` does not take, and if `out` holds something else.

    Example:
        >>> import tempfile
        >>> out, data = Path(tempfile.mkdtemp()) / "curve", "docstrings:json,csv,string,textwrap"
        >>> found = curve(data, model_folder, out, shares=[0.5, 1.0], seeds=[0], steps=1, batch_size=4, say=str)
        >>> [point.share for point in found.points], found.answer in ("yes", "no", "unclear")
        ([0.5, 1.0], True)
    """
    shares = _checked_shares(shares)
    _check_options(options, seeds)
    require_measures([measure])
    out = Path(out)
    _require_own_folder(out)
    train, test = (Collection.load(data, split, skip_bad) for split in ("train", "test"))
    if len(test.queries) < 2:
        raise InputError(f"too few test queries for an interval: {len(test.queries)}", file=data, do="judge some more")
    if train.rejects.count:
        say(f"skipped bad input: {train.rejects.describe()}")
    subsets = nested(_trainable(train), shares)
    names = ("pooling", "similarity", "query_length", "document_length")
    start = BiEncoder.from_pretrained(str(model), **{n: options[n] for n in names if options.get(n) is not None})
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        remove_left(out, deep=True)
        asked = {**options, "skip_bad": skip_bad}
        _take_folder(out, _inputs(train, test, start, triplets), measure, asked)
        table = Path(triplets) if triplets is not None else _mined(train, out / TRIPLETS, options, say)
        before = _scores(out / BEFORE, test, partial(_measured, start, test, measure))
        count = len(shares) * len(seeds)
        runs = _Runs(str(data), str(model), out / "runs", table, train, test, measure, asked, count, say)
        trained = [runs.trained(share, queries, seeds) for share, queries in subsets.items()]
        found = grown(measure, before, trained)
        about = {"data": str(data), "model": str(model), "shares": shares, "seeds": list(seeds), "options": asked}
        write_header(out / CURVE, _plain({"format": CURVE_FORMAT, **about, **curve_json(found)}))
        curve_section(found, about).save(out, overwrite=True)
    return found


def nested(queries: Iterable[str], shares: Sequence[float]) -> dict[float, list[str]]:
    """Shares of queries, each of which contains the smaller ones: the first of them in an order that hashes decide.

    The order of the queries does not matter, and a further query moves none of the others before another.

    Raises:
        InputError: if two shares are the same queries.

    Example:
        >>> {share: len(of) for share, of in nested([f"q{i}" for i in range(10)], [0.1, 0.33, 1.0]).items()}
        {0.1: 1, 0.33: 3, 1.0: 10}
    """
    ordered = sorted(queries, key=lambda query: (hashlib.blake2b(f"{ORDER}\0{query}".encode()).digest(), query))
    subsets = {share: ordered[: max(1, round(share * len(ordered)))] for share in shares}
    if len({len(subset) for subset in subsets.values()}) < len(shares):
        problem = (
            f"shares {' and '.join(f'{share:g}' for share in shares)} of {len(ordered):,} queries are not distinct"
        )
        raise InputError(problem, do="choose shares that are further apart")
    return subsets


def _checked_shares(shares: Sequence[float]) -> list[float]:
    """Shares in ascending order, each once."""
    if wrong := [share for share in shares if not 0 < share <= 1]:
        raise InputError(f"{wrong[0]:g} is not a share of the training queries", do="shares are above 0, and at most 1")
    if len(set(shares)) < 2:
        raise InputError("a curve needs two shares or more", do="give --shares 0.1 0.33 1.0, for instance")
    return sorted(set(shares))


def _check_options(options: dict[str, Any], seeds: Sequence[int]) -> None:
    """Refuse options that `fit` would refuse, before anything is mined or measured."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError("the seeds are missing or not distinct", do="give --seeds 0 1 2, for instance")
    for name in options:
        if name in OWN:
            raise InputError(f"{name} is not an option of a learning curve", do=f"give {OWN[name]}")
    changes = {name: value for name, value in options.items() if name not in inspect.signature(fit).parameters}
    for seed in seeds:
        resolve_settings(None, options.get("preset"), {**changes, "seed": seed})


def _require_own_folder(out: Path) -> None:
    if resolved(out).exists() and not out.is_dir():
        raise InputError("is not a folder", file=out, do="choose another place")
    if out.exists() and not (out / ASKED).exists() and not all(map(is_scratch, out.iterdir())):
        raise InputError("has other files in it", file=out, do="choose another place")


def _inputs(train: Collection, test: Collection, model: BiEncoder, triplets: str | Path | None) -> dict[str, str]:
    """Hashes of all that the training runs and their scores depend on, by names for people."""
    judgments = json.dumps([train.qrels, test.qrels]).encode()
    texts = [texts_fingerprint(texts) for texts in (train.documents, train.queries, test.queries)]
    return {
        "texts": " ".join(texts),
        "judgments": hashlib.blake2b(judgments, digest_size=16).hexdigest(),
        "model": model.fingerprint(),
        "triplets": "mined" if triplets is None else triplets_hash(Path(triplets)),
    }


def _take_folder(out: Path, inputs: dict[str, str], measure: str, options: dict[str, Any]) -> None:
    """Make a folder this curve's own, or see that it is. A curve that bad input stopped before training begins anew."""
    plain = _plain(options)
    if (out / ASKED).exists():
        before = read_header(out / ASKED, AskedHeader, ASKED_FORMAT, OTHER_PLACE)
        different = [f"other {name}" for name, value in inputs.items() if before["input"].get(name) != value]
        different += ["another measure"] * (before["measure"] != measure)
        names = sorted({*before["options"], *plain})
        different += [f"another {name}" for name in names if before["options"].get(name) != plain.get(name)]
        if not different:
            return
        if any(out.glob("runs/*/seed-*/metrics.csv")):
            raise InputError(f"has a curve of {', '.join(different)}", file=out, do=OTHER_PLACE)
        shutil.rmtree(out / "runs", ignore_errors=True)
        for name in (BEFORE, TRIPLETS):
            (out / name).unlink(missing_ok=True)
    write_header(out / ASKED, {"format": ASKED_FORMAT, "input": inputs, "measure": measure, "options": plain})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON gives them back; paths as text."""
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain


def _trainable(train: Collection) -> list[str]:
    """The training queries that have a relevant document."""
    return [query for query, judged in train.qrels.items() if any(grade > 0 for grade in judged.values())]


def _mined(train: Collection, path: Path, options: dict[str, Any], say: Callable[[str], None]) -> Path:
    """As `fit` mines with these options, whatever the seeds."""
    remove_parts(path)
    if not path.exists():
        how = MiningSettings() if options.get("preset") in OF_THE_PAPER else RECIPE
        how = replace(how, language=options.get("language") or how.language)
        mine_for_training(train, path, say, how, at_least=options.get("per_triplet") or 1)
    return path


def _measured(model: BiEncoder, test: Collection, measure: str) -> dict[str, float]:
    return evaluate(search(test, "exact", model), test, [measure]).per_query[measure]


def _scores(path: Path, test: Collection, compute: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Scores that were saved, or new ones, which are saved."""
    if not path.exists():
        write_header(path, {"format": SCORES_FORMAT, "scores": compute()})
    do = "delete it: it is made again"
    scores = read_header(path, ScoresHeader, SCORES_FORMAT, do)["scores"]
    if scores.keys() != test.qrels.keys():
        raise InputError("not the scores of these test queries", file=path, do=do)
    return scores


@dataclass
class _Runs:
    """The training runs of a curve: those that are finished are read, the others are trained."""

    data: str
    model: str
    folder: Path
    triplets: Path
    train: Collection
    test: Collection
    measure: str
    options: dict[str, Any]
    count: int
    say: Callable[[str], None]
    done: int = 0

    def trained(self, share: float, queries: list[str], seeds: Sequence[int]) -> Trained:
        """A share with the scores of all its seeds."""
        folder = self.folder / f"{share:g}"
        if not (folder / TRIPLETS).exists():
            self._write_share(folder / TRIPLETS, share, set(queries))
        pairs = len({(row.query, row.positive) for row in read_id_triplets(folder / TRIPLETS, Rejects())})
        scores = {}
        for seed in seeds:
            self.done += 1
            name = f"{self.done} of {self.count}: share {share:g}, {pairs:,} pairs, seed {seed}"
            train = partial(self._train, folder, seed, name)
            scores[seed] = _scores(folder / f"seed-{seed}.json", self.test, train)
            for big in ("data", "checkpoint"):  # with the scores, nothing is left to resume
                shutil.rmtree(folder / f"seed-{seed}" / big, ignore_errors=True)
        return Trained(share, len(queries), pairs, scores)

    def _write_share(self, path: Path, share: float, queries: set[str]) -> None:
        """The triplets of some queries, one by one: there may be more in all than memory holds."""
        rejects = Rejects(skip=self.options["skip_bad"])
        own = (row for row in read_id_triplets(self.triplets, rejects, self.train) if row.query in queries)
        first = next(own, None)
        if first is None:
            problem = f"no triplets for the {len(queries):,} queries of share {share:g}"
            raise InputError(problem, file=self.folder.parent, do="give larger shares, or triplets of all queries")
        _write_triplets(path, first, own)
        if rejects.count:
            self.say(f"skipped bad triplets: {rejects.describe()}")

    def _train(self, folder: Path, seed: int, name: str) -> dict[str, float]:
        self.say(f"training run {name}")
        out, table = folder / f"seed-{seed}", folder / TRIPLETS
        fitted = fit(self.data, self.model, out, triplets=table, seed=seed, resume=True, say=self.say, **self.options)
        scores = _measured(BiEncoder.from_pretrained(fitted.model), self.test, self.measure)
        self.say(f"{self.measure} on test: {sum(scores.values()) / len(scores):.4f}")
        return scores


def _write_triplets(path: Path, first: TripletText, others: Iterable[TripletText]) -> None:
    """A table of triplets of ids, with scores if they have some."""
    count = len(first.negatives)
    suffixes = [""] if count == 1 else [f"_{i + 1}" for i in range(count)]
    header = ["query_id", "positive_id", *(f"negative_id{suffix}" for suffix in suffixes)]
    if first.scores is not None:
        header += ["positive_score", *(f"negative_score{suffix}" for suffix in suffixes)]
    with new_file(path) as file:
        file.write("\t".join(header).encode() + b"\n")
        for row in itertools.chain([first], others):
            fields = [row.query, row.positive, *row.negatives, *(f"{score:.9g}" for score in row.scores or [])]
            file.write("\t".join(fields).encode() + b"\n")
