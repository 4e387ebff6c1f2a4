"""evaluate as a verb: run files, names of collections, and what it writes and leaves out."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from remargin import Collection, InputError, Run, evaluate
from remargin.data.collection import open_collection
from remargin.evaluation.comparison import read_query_scores


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """Two documents, of which the second is a query, too."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = {"corpus": {"a": "Dogs bark.", "b": "Cats purr."}, "queries": {"q": "Who barks?", "b": "Cats purr."}}
    for name, items in texts.items():
        lines = (json.dumps({"_id": id, "text": text}) + "\n" for id, text in items.items())
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "qrels" / "test.tsv").write_text("q\ta\t1\nb\ta\t1\n")
    (folder / "qrels" / "dev.tsv").write_text("q\tb\t1\n")
    return folder


RUN = Run.of({"q": {"a": 2.0, "b": 1.0}, "b": {"b": 2.0, "a": 1.0}})


def test_a_run_file_and_the_name_of_a_collection(beir: Path, tmp_path: Path) -> None:
    RUN.save(tmp_path / "run.trec")
    evaluation = evaluate(tmp_path / "run.trec", beir, "RR", per_query=tmp_path / "scores.csv")
    assert (evaluation.means, evaluation.self_matches) == ({"RR": 1.0}, 1)
    assert read_query_scores(tmp_path / "scores.csv") == evaluation.per_query
    assert evaluate(RUN, Collection.load(beir), "RR") == evaluation
    judgments_alone = evaluate(RUN, Collection.load(beir).qrels, "RR")
    assert (judgments_alone.means, judgments_alone.self_matches) == ({"RR": 0.75}, 0)
    assert evaluate(RUN, str(beir), "RR", split="dev").means == {"RR": 0.5}


def test_what_would_be_overwritten_is_refused_first(beir: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        evaluate(tmp_path / "nowhere.trec", beir, "RR", per_query=tmp_path / "scores.csv")
    evaluate(RUN, beir, "RR", per_query=tmp_path / "scores.csv", overwrite=True)
    assert (tmp_path / "scores.csv").read_text().startswith("query,RR")


def test_a_run_of_which_no_query_is_judged_is_refused(beir: Path, tmp_path: Path) -> None:
    other = Run.of({"x": {"a": 1.0}})
    with pytest.raises(InputError, match=r"^none of its queries is judged in split 'test'"):
        evaluate(other, beir)
    other.save(tmp_path / "other.trec")
    with pytest.raises(InputError, match=r"other\.trec: none of its queries"):
        evaluate(tmp_path / "other.trec", beir)


def test_skipped_input_is_counted_in_a_warning(beir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open(beir / "corpus.jsonl", "a") as corpus:
        corpus.write('{"_id": "c c", "text": "x"}\n{"_id": "d"}\n')
    with pytest.raises(InputError, match="has white space in it"):
        evaluate(RUN, beir, "RR")
    with caplog.at_level(logging.WARNING):
        assert evaluate(RUN, beir, "RR", skip_bad=True).means == {"RR": 1.0}
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"skipped bad input: 2, the first is {beir / 'corpus.jsonl'}:")
    assert message.endswith("has white space in it, which no run file could hold")  # without the advice to skip it
    caplog.clear()
    open_collection(beir, skip_bad=True).rejects.warn()
    assert len(caplog.records) == 2
