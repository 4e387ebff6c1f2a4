"""ONNX files: the model's own vectors, whatever the lengths, and nothing of this machine in them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from remargin import BiEncoder
from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.integrations import onnx as ours
from remargin.integrations.int8 import cost_of_int8, speeds, write_int8
from remargin.integrations.onnx import INT8_FILE, OnnxEncoder, largest_difference, write_onnx

TEXTS = ["", "a", "how do margins adapt", "the value of the text of the model", "query " * 90, "list, file: test?"]
Written = Callable[..., tuple[BiEncoder, Path]]


@pytest.fixture(scope="module")
def written(tiny_encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """An encoder of a family, and the folder with its ONNX file, written once."""

    @cache
    def write(family: str = "bert", **options: Any) -> tuple[BiEncoder, Path]:
        source = tiny_encoder(family) if isinstance(family, str) else family
        model = BiEncoder.from_pretrained(source, precision="32", device="cpu", **options)
        folder = tmp_path_factory.mktemp("onnx") / "model"
        model.save(folder)
        assert write_onnx(model, folder) < 1e-5
        return model, folder

    return write


def compare(model: BiEncoder, folder: Path) -> None:
    encoder = OnnxEncoder(folder)
    for batch_size in (1, 3, 32):
        for name in ("encode_queries", "encode_documents"):
            expected, got = getattr(model, name)(TEXTS), getattr(encoder, name)(TEXTS, batch_size)
            assert np.abs(expected - got).max() < 1e-4
            assert got.shape == (len(TEXTS), model.dimension)
    assert len({row.tobytes() for row in encoder.encode_documents(TEXTS)}) == len(TEXTS)  # not all the same


def test_vectors_are_the_models(written: Written) -> None:
    model, folder = written(query_prefix="query: ", pooling="mean")
    compare(model, folder)
    assert np.allclose(np.linalg.norm(OnnxEncoder(folder).encode_queries(TEXTS), axis=1), 1, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("mpnet", {"pooling": "mean"}),
        ("roberta", {"pooling": "cls+linear"}),
        ("distilbert", {"similarity": "dot"}),
        ("bert", {"pooling": "cls+pooler"}),
    ],
)
def test_so_they_are_for_every_family(written: Written, family: str, options: dict[str, Any]) -> None:
    """MPNet has a bias for relative positions, RoBERTa counts positions from its padding."""
    compare(*written(family, **options))


@pytest.mark.slow
def test_the_real_minilm(written: Written, minilm: Path) -> None:
    model, folder = written(minilm)
    compare(model, folder)
    share = write_int8(folder)
    assert 0.2 < share < 0.3
    cosines = (OnnxEncoder(folder, INT8_FILE).encode_documents(TEXTS[1:]) * model.encode_documents(TEXTS[1:])).sum(1)
    assert cosines.min() > 0.98


def test_the_file_is_for_everyone(written: Written) -> None:
    _, folder = written(query_prefix="query: ", pooling="mean")
    content = (folder / "model.onnx").read_bytes()
    for trace in (b"/site-packages/", b"encoder.py", b"stack_trace", str(Path.home()).encode()):
        assert trace not in content
    graph = onnx.load(folder / "model.onnx").graph
    sizes = {
        value.name: [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] for value in graph.input
    }
    assert sizes == {"input_ids": ["batch", "sequence"], "attention_mask": ["batch", "sequence"]}
    [output] = graph.output
    assert (output.name, output.type.tensor_type.shape.dim[1].dim_value) == ("embeddings", 32)


@pytest.mark.slow
def test_weights_of_more_than_two_gigabytes_lie_beside_it(
    tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "ONE_FILE", 1000)
    model = BiEncoder.from_pretrained(tiny_encoder(), precision="32", device="cpu")
    model.save(tmp_path / "model")
    write_onnx(model, tmp_path / "model")
    assert (tmp_path / "model" / "model.onnx.data").stat().st_size > 10_000
    write_int8(tmp_path / "model")
    assert len(OnnxEncoder(tmp_path / "model", INT8_FILE).encode_queries(["a text"])) == 1


def test_other_vectors_are_noticed(written: Written, tmp_path: Path) -> None:
    model, folder = written(query_prefix="query: ", pooling="mean")
    with torch.no_grad():
        other = BiEncoder.from_pretrained(folder, precision="32", device="cpu")
        next(iter(other.parameters())).mul_(1.01)
    assert largest_difference(model, OnnxEncoder(folder)) < 1e-5
    assert largest_difference(other, OnnxEncoder(folder)) > 1e-4


def test_a_file_with_other_vectors_is_refused(
    tiny_encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = BiEncoder.from_pretrained(tiny_encoder(), device="cpu")

    class Saved:
        def save(self, path: str, external_data: bool) -> None:
            raise RuntimeError("no operator\nof that name")

    monkeypatch.setattr(ours, "_export", lambda model: Saved())
    with pytest.raises(InputError, match=r"cannot be exported to ONNX \(no operator\); leave --onnx out"):
        write_onnx(model, tmp_path)


def test_int8_is_measured(written: Written) -> None:
    model, folder = written(query_prefix="query: ", pooling="mean")
    assert 0 < write_int8(folder) < 1
    coded = OnnxEncoder(folder, INT8_FILE)
    documents = {f"d{i}": f"{text} {i}" for i, text in enumerate(TEXTS * 5)}
    queries = {f"q{i}": text for i, text in enumerate(TEXTS) if text}
    collection = Collection("faq", "test", documents, queries, {query: {f"d{query[1:]}": 1} for query in queries})
    cost = cost_of_int8(model, coded, collection, "faq.csv")
    assert (cost.queries, cost.documents) == (5, 30)
    assert cost.difference.mean == pytest.approx(cost.after - cost.before)
    assert cost.difference.low <= cost.difference.mean <= cost.difference.high
    same = cost_of_int8(model, OnnxEncoder(folder), collection, "faq.csv")
    assert same.difference.mean == 0
    timed = speeds(model, OnnxEncoder(folder), coded, list(documents.values()))
    assert min(timed.encoder, timed.onnx, timed.int8) > 0


def test_a_folder_without_a_file_is_named(tiny_encoder: Any) -> None:
    with pytest.raises(InputError, match=r"model\.onnx: not found; name a folder that `remargin export --onnx` wrote"):
        OnnxEncoder(tiny_encoder())


def test_a_damaged_file_is_one_line(written: Written, tmp_path: Path) -> None:
    _, folder = written(query_prefix="query: ", pooling="mean")
    (folder / "broken.onnx").write_bytes(b"not a model")
    with pytest.raises(InputError, match="ONNX Runtime does not take it"):
        OnnxEncoder(folder, "broken.onnx")
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: no tokenizer"):
        OnnxEncoder(damaged)
