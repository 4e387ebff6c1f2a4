"""A first-stage run that is given to a study: what it ranks is re-ranked, and what it lacks is said at the start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remargin import Collection, InputError, Run, search
from remargin.files.headers import write_header
from remargin.study.first_stage import first_stage_hash, load_first_stage
from remargin.study.header import read_study
from remargin.study.results import HITS, MEASURE

from ..irds import Part, registered_with
from ..small_study import PLAN, Open


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twenty documents, and five queries in each split."""
    folder = tmp_path_factory.mktemp("staged") / "staged"
    (folder / "qrels").mkdir(parents=True)
    for kind, start in (("corpus", "the value of"), ("queries", "which value is")):
        lines = [json.dumps({"_id": f"{kind[0]}{i}", "text": f"{start} part {i} {i % 3}"}) for i in range(20)]
        (folder / f"{kind}.jsonl").write_text("\n".join(lines))
    for n, split in enumerate(("train", "dev", "test")):
        rows = [f"q{i}\tc{i}\t1" for i in range(5 * n, 5 * n + 5)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows, ""]))
    return str(folder)


@pytest.fixture(scope="module")
def dev(data: str) -> Collection:
    return Collection.load(data, "dev")


@pytest.fixture(scope="module")
def bm25(dev: Collection) -> Run:
    return search(dev, "bm25", k=1000)


def written(run: Run, path: Path) -> Path:
    run.save(path, overwrite=True)
    return path


def test_its_documents_are_re_ranked(open_study: Open, data: str, dev: Collection, bm25: Run, tmp_path: Path) -> None:
    plan = replace(PLAN, validation_queries=10**6, validation_depth=5)
    chosen = Run.of({query: dict.fromkeys(list(dev.documents)[:7], 1.0) for query in dev.queries})
    study = open_study(
        tmp_path / "given", data=data, plan=plan, first_stage=written(chosen, tmp_path / "first.trec.gz")
    )
    validator = study.training.validator("tiny")
    model = study.backbones["tiny"]
    assert validator.describe() == "re-ranking the first 5 documents of the run that was given"
    ranked = validator.rank(_encoder(model)).rankings
    assert {query: set(ranking) for query, ranking in ranked.items()} == {
        query: set(chosen.top(query, 5)) for query in dev.queries
    }
    again = open_study(tmp_path / "bm25", data=data, plan=plan, first_stage=written(bm25, tmp_path / "bm25.trec"))
    own = open_study(tmp_path / "own", data=data, plan=plan)
    means = [s.training.validator("tiny").evaluate(_encoder(model)).means for s in (again, own, study)]
    assert means[0] == pytest.approx(means[1])  # BM25's run is what it takes without one
    assert means[0] != means[2]
    assert means[0].keys() == {MEASURE, HITS}


def _encoder(path: str) -> Any:
    from remargin import BiEncoder
    from remargin.model.encoder import PAPER_LENGTHS

    return BiEncoder.from_pretrained(path, lengths=PAPER_LENGTHS)


def test_what_a_run_lacks_is_said_before_a_study_begins(open_study: Open, data: str, bm25: Run, tmp_path: Path) -> None:
    first, *others = bm25.rankings
    lacking = written(Run.of({query: bm25.rankings[query] for query in others}), tmp_path / "lacking.trec")
    with pytest.raises(
        InputError, match=rf"lacking.trec: .*{first}.*: lacks 1 of {len(bm25):,} queries of split 'dev'"
    ):
        open_study(tmp_path / "out", data=data, first_stage=lacking)
    unknown = written(Run.of({**bm25.rankings, first: {"nowhere": 1.0}}), tmp_path / "unknown.trec")
    with pytest.raises(InputError, match=r"unknown.trec: id 'nowhere': is not a document of the collection; check"):
        open_study(tmp_path / "out", data=data, first_stage=unknown)
    with pytest.raises(InputError, match="--first-stage does nothing for full validation"):
        open_study(tmp_path / "out", data=data, first_stage=unknown, plan=replace(PLAN, full_validation=True))
    test_queries = Collection.load(data, "test").queries
    with pytest.raises(InputError, match=rf"lacks {len(test_queries)} of {len(test_queries)} queries of split 'test'"):
        open_study(
            tmp_path / "out",
            data=data,
            first_stage=written(bm25, tmp_path / "dev.trec"),
            plan=replace(PLAN, validation_split="test"),
        )
    assert not (tmp_path / "out").exists()


def test_a_study_goes_on_with_the_same_run_alone(open_study: Open, data: str, bm25: Run, tmp_path: Path) -> None:
    path, out = written(bm25, tmp_path / "first.trec"), tmp_path / "out"
    open_study(out, data=data)
    (out / "runs").mkdir()  # from here on it has results
    with pytest.raises(InputError, match=r"is of another study: another --first-stage; choose another place"):
        open_study(out, data=data, first_stage=path)
    header = read_study(out)
    for field, value in {"validation_split": "test", "index": "faiss"}.items():
        plan = replace(PLAN, **{field: value})
        with pytest.raises(InputError, match=rf"{field} was (dev|exact), is {value} now"):
            open_study(out, data=data, plan=plan)
        del header["plan"][field]
    del header["first_stage"]
    write_header(out / "study.json", header)  # as older versions have it
    open_study(out, data=data)
    write_header(out / "study.json", header)
    with pytest.raises(InputError, match="another --first-stage, validation_split was dev, is test now"):
        open_study(out, data=data, first_stage=run_of_test(data, tmp_path), plan=replace(PLAN, validation_split="test"))


def run_of_test(data: str, folder: Path) -> Path:
    test = Collection.load(data, "test")
    some = list(test.documents)[:3]
    return written(Run.of({query: dict.fromkeys(some, 1.0) for query in test.queries}), folder / "test.trec")


def test_the_hash_is_of_what_is_ranked_for_the_split(data: str, bm25: Run, tmp_path: Path) -> None:
    path = written(bm25, tmp_path / "first.trec")
    more = {"elsewhere": {"d": 1.0}}
    hashed = first_stage_hash(path, data, "dev")
    assert first_stage_hash(written(Run.of({**bm25.rankings, **more}), path), data, "dev") == hashed  # of other queries
    query = next(iter(bm25.rankings))
    changed = {**bm25.rankings, query: dict.fromkeys(bm25.rankings[query], 1.0)}
    assert first_stage_hash(written(Run.of(changed), path), data, "dev") != hashed


def test_the_official_run_of_a_data_set(tmp_path: Path) -> None:
    documents = {"a": "a text", "b": "another"}
    run = "q\ta\nq\tb\n"
    parts = {"test": Part({"q": "which?"}, "q 0 a 3\n", run=run), "dev": Part({"v": "what?"}, "v 0 b 1\n")}
    with registered_with("staged", tmp_path, documents, parts):
        assert load_first_stage(Path("irds:staged/test")).rankings == {"q": {"a": 0.0, "b": 0.0}}
        assert first_stage_hash(Path("irds:staged/test"), "irds:staged/dev", "test")
        with pytest.raises(InputError, match="irds:staged/dev has no first-stage run; choose one that has"):
            load_first_stage(Path("irds:staged/dev"))
        with pytest.raises(InputError, match="ir_datasets knows no data set 'staged/nothing'"):
            load_first_stage(Path("irds:staged/nothing"))
