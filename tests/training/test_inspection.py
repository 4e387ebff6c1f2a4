"""inspect: a batch computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from remargin import BiEncoder, Collection, InputError
from remargin.cli import app
from remargin.data.preparation import prepare
from remargin.data.training_data import TrainingData
from remargin.mining.negatives import mine
from remargin.training.batches import Batches
from remargin.training.inspection import EQUATION, explain, inspect
from remargin.training.samplers import RandomSampler


def test_by_hand() -> None:
    """q at 0°, its positive at 60°, negatives at 90°, 120° and 180°."""
    angles = np.radians([90, 120, 180])
    negatives = 3 * np.stack([np.cos(angles), np.sin(angles)], 1)  # their length does not matter
    found = explain(np.array([2.0, 0.0]), np.array([np.cos(np.pi / 3), np.sin(np.pi / 3)]), negatives)
    assert found.positive_relevance == pytest.approx(0.5)
    assert found.relevance == pytest.approx([0.0, -0.5, -1.0])
    third = (1 + 3**0.5 / 2) / 2
    assert found.targets == pytest.approx([third, 0.75, 0.25])
    assert found.losses == pytest.approx([(0.5 - third) ** 2, (1.0 - 0.75) ** 2, (1.5 - 0.25) ** 2])
    assert found.chosen() == {"highest": 0, "middle": 1, "lowest": 2}  # the mean is 0.64
    assert found.chosen(np.array([False, True, True])) == {"highest": 1, "middle": 1, "lowest": 2}


def test_the_equation_is_that_of_the_papers_table() -> None:
    """Its printed numbers are equation 2's with in-batch negatives; no margin of equation 3 has these three losses."""
    positive, printed = 0.79, [(0.34, 0.69, 0.06), (0.06, 0.51, 0.05), (0.12, 0.46, 0.04)]
    for relevance, target, loss in printed:
        assert (positive - relevance - target) ** 2 == pytest.approx(loss, abs=0.005)
    margins = np.linspace(-2, 2, 4001)  # of the query's own negative, which the table does not print
    apart = np.max([np.abs((margins - target) ** 2 - loss) for _, target, loss in printed], axis=0)
    assert apart.min() > 0.01
    assert "equation 2 with in-batch negatives" in EQUATION


def test_with_dot_products_lengths_matter() -> None:
    found = explain(np.array([2.0, 0.0]), np.array([1.0, 1.0]), np.array([[0.0, 3.0], [1.0, 0.0]]), "dot")
    assert found.positive_relevance == 2.0
    assert found.relevance.tolist() == [0.0, 2.0]
    assert found.targets.tolist() == [2.0, 1.0]
    assert found.losses.tolist() == [0.0, 1.0]


@pytest.fixture
def prepared(tiny_model: Any, tmp_path: Path) -> Path:
    train = Collection.load("docstrings:json,csv,textwrap", "train")
    mine(train, tmp_path / "triplets.tsv", triplets=2, per_triplet=2)
    folder = tmp_path / "data"
    prepare("docstrings:json,csv,textwrap", tiny_model(), folder, tmp_path / "triplets.tsv", document_length=64)
    return folder


@pytest.mark.parametrize("negatives", [1, 2])
def test_it_is_the_batch_that_training_sees(negatives: int, tiny_model: Any, prepared: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model(), document_length=64)
    store = TrainingData(prepared)
    rows = Batches(store, RandomSampler.of(store.triplets, 8, 3, negatives)).batch(2)
    place = 5
    query = store.queries.ids[int(rows.queries[place])]
    first = [store.queries.ids[int(row)] for row in rows.queries].index(query)
    found = inspect(prepared, model, query, batch=2, batch_size=8, seed=3, per_triplet=negatives)
    texts = Collection.load(prepared, "train")
    assert found.query.text == texts.queries[query]
    assert found.positive.id == store.documents.ids[int(rows.positives[first])]
    q = model.encode_queries([texts.queries[query]])[0]
    p = model.encode_documents([texts.documents[found.positive.id]])[0]
    assert found.positive.relevance == pytest.approx(float(q @ p), abs=1e-5)
    ids = [store.documents.ids[int(row)] for row in rows.negatives.ravel()]
    assert len(ids) == 8 * negatives
    vectors = model.encode_documents([texts.documents[id] for id in ids])
    targets = (1 + vectors @ p) / 2
    for shown in found.negatives:
        assert shown.text == texts.documents[shown.id]
        place = ids.index(shown.id)
        assert shown.target == pytest.approx(float(targets[place]), abs=1e-5)
        assert shown.relevance == pytest.approx(float(q @ vectors[place]), abs=1e-5)
        wanted = (float(q @ p) - float(q @ vectors[place]) - float(targets[place])) ** 2
        assert shown.loss == pytest.approx(wanted, abs=1e-5)
    by_target = [shown.target or 0.0 for shown in found.negatives]
    assert by_target == [pytest.approx(targets.max(), abs=1e-5), by_target[1], pytest.approx(targets.min(), abs=1e-5)]
    assert found.mean_target == pytest.approx(float(targets.mean()), abs=1e-5)


def test_a_querys_positive_is_not_shown_as_its_negative(tiny_model: Any, tmp_path: Path) -> None:
    """Though another query of the batch has it as one, with the highest target that there is."""
    triplets = ("how to sort\tkeep them in order\tread a file", "how to read\tread a file\tkeep them in order")
    (tmp_path / "triplets.tsv").write_text("\n".join(triplets) + "\n")
    prepare(None, tiny_model(), tmp_path / "data", tmp_path / "triplets.tsv", document_length=64)
    found = inspect(tmp_path / "data", BiEncoder.from_pretrained(tiny_model()), batch_size=2)
    assert {passage.text for passage in found.negatives} == {
        "read a file" if found.positive.text == "keep them in order" else "keep them in order"
    }


def test_a_query_that_is_not_in_the_batch(tiny_model: Any, prepared: Path) -> None:
    model = BiEncoder.from_pretrained(tiny_model(), document_length=64)
    with pytest.raises(InputError, match=r"query 'nobody' is not in batch 0; choose one that is, such as \w+"):
        inspect(prepared, model, "nobody", batch_size=4)


def test_from_the_command_line(tiny_model: Any, prepared: Path) -> None:
    folder = prepared.parent / "model"
    model = BiEncoder.from_pretrained(tiny_model(), document_length=64)
    model.save(folder)
    found = inspect(prepared, model, batch=1, batch_size=4)
    arguments = ["inspect", "--data", str(prepared), "--model", str(folder), "--batch", "1", "--batch-size", "4"]
    output = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    assert f"query {found.query.id}, batch 1" in output
    assert EQUATION in " ".join(output.split())
    for passage in found.negatives:
        (line,) = (line for line in output.splitlines() if line.startswith(passage.role))
        assert line.split()[-3:] == [f"{passage.relevance:.3f}", f"{passage.target:.3f}", f"{passage.loss:.3f}"]


def test_a_raw_backbone_is_inspected_as_it_is_said(tiny_model: Any, prepared: Path) -> None:
    with pytest.raises(InputError, match="does not say the pooling and the similarity of its encoder; give --pooling"):
        inspect(prepared, tiny_model())
    said = BiEncoder.from_pretrained(tiny_model(), pooling="mean", similarity="dot", document_length=64)
    arguments = ["--model", tiny_model(), "--pooling", "mean", "--similarity", "dot", "--batch-size", "4", "--json"]
    asked = map(str, ["inspect", "--data", prepared, *arguments])
    output = CliRunner().invoke(app, list(asked), catch_exceptions=False)
    assert json.loads(output.stdout)["mean_loss"] == pytest.approx(inspect(prepared, said, batch_size=4).mean_loss)
