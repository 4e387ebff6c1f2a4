"""`export`: a model for the Hugging Face hub and ONNX Runtime, or vectors for a database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from remargin.data.collection import Collection
from remargin.errors import InputError, refuse_idle
from remargin.files.atomic import new_folder, refuse_existing
from remargin.integrations import model_card
from remargin.integrations.hub import check_push, push_folder
from remargin.integrations.int8 import Int8, cost_of_int8, speeds, write_int8
from remargin.integrations.onnx import INT8_FILE, OnnxEncoder, needed, write_onnx
from remargin.integrations.parquet import open_vectors, write_parquet
from remargin.model.conversion import convert_weights
from remargin.model.parts import OURS
from remargin.progress import tell
from remargin.retrieval.encoders import as_encoder, given_texts
from remargin.retrieval.hybrid import read_fusion, save_fusion


@dataclass(frozen=True)
class Exported:
    """What `export` wrote.

    Attributes:
        out: the folder of a model, or the Parquet file.
        rows: vectors in the Parquet file.
        onnx: the largest difference between numbers of the ONNX file's vectors and the model's, if there is one.
        int8: what is known of the int8 file, if there is one.
        url: where the model was pushed to.
    """

    out: Path
    rows: int | None = None
    onnx: float | None = None
    int8: Int8 | None = None
    url: str | None = None


def export(
    out: str | Path,
    model: str | Path | None = None,
    vectors: str | Path | None = None,
    index: str | Path | None = None,
    *,
    data: str | Path | None = None,
    onnx: bool = False,
    int8: bool = False,
    push: str | None = None,
    public: bool = False,
    texts: bool = True,
    pooling: str | None = None,
    similarity: str | None = None,
    safetensors: bool = False,
    skip_bad: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = tell,
) -> Exported:
    """Write a model for the Hugging Face hub, or vectors as Parquet, as `remargin export` does.

    A model becomes a folder that sentence-transformers loads, with a model card. The card of a model that `fit` wrote
    (runs/NAME/model) is written from the files of its training run.

    Args:
        out: the folder to write; for vectors or an index, the Parquet file.
        model: the encoder: a folder, or a name of the Hugging Face hub.
        vectors: what `encode` wrote, instead of a model.
        index: what `index` wrote, instead of a model.
        data: with `int8`, a collection on whose test split its loss of nDCG@10 is measured; for vectors and an index,
            where their collection is now.
        onnx: write model.onnx, with pooling and normalisation inside, and check it against the model.
        int8: write model_int8.onnx as well, with weights of 8 bits, and measure its speed.
        push: upload the folder to the Hugging Face hub under this name, as a private model.
        public: make that model a public one.
        texts: whether the Parquet file has the texts, which an index keeps, or which are read from the collection.
        pooling, similarity: of the model, which the folder then says, instead of what its own folder says.
        safetensors: copy the model's folder, whatever its layout, with its pickled weights (.bin) as safetensors. Only
            tensors are read of them.
        skip_bad: skip bad input in `data`, and count it in a warning.
        overwrite: replace `out` if it is there.
        say: takes lines for people.

    Raises:
        InputError: for bad input, an `out` that is there already, an optional package that is missing, and an ONNX
            file that gives other vectors than the model.

    Example:
        >>> import tempfile
        >>> out = Path(tempfile.mkdtemp()) / "hub"
        >>> _ = export(out, model_folder, say=lambda line: None)
        >>> (out / "README.md").read_text().splitlines()[1]
        'library_name: sentence-transformers'
    """
    given = [name for name, value in (("model", model), ("vectors", vectors), ("index", index)) if value is not None]
    if len(given) != 1:
        raise InputError(f"{' and '.join(given) or 'nothing'} to export", do="give one of --model, --vectors, --index")
    out = Path(out)
    used = given_texts(None, None, None, None, pooling, similarity)
    if model is not None and safetensors:
        others = {"data": data is not None, "onnx": onnx, "int8": int8, "push": push is not None, "public": public}
        refuse_idle("a conversion to safetensors", [*used, *(name for name, is_given in others.items() if is_given)])
        convert_weights(model, out, overwrite, say)
        return Exported(out)
    if model is not None:
        refuse_idle("a model", [] if texts else ["no_texts"])
        refuse_idle("an export without --int8", [] if data is None or int8 else ["data"])
        refuse_idle("an export without --push", ["public"] if public and push is None else [])
        refuse_existing(out, overwrite, OURS)
        return _export_model(
            str(model), out, data, onnx or int8, int8, push, not public, skip_bad, overwrite, used, say
        )
    refuse_idle("vectors", used)
    of_models = {"safetensors": safetensors, "onnx": onnx, "int8": int8, "push": push is not None, "public": public}
    refuse_idle("vectors", [name for name, is_given in of_models.items() if is_given])
    refuse_existing(out, overwrite)
    where = None if data is None else str(data)
    written = write_parquet(open_vectors(vectors, index), out, where, texts, skip_bad, overwrite)
    if written.not_encoded:
        say(f"{written.not_encoded:,} texts of the collection have no vector, and are left out")
    return Exported(out, written.rows)


def _export_model(
    name: str,
    out: Path,
    data: str | Path | None,
    onnx: bool,
    int8: bool,
    push: str | None,
    private: bool,
    skip_bad: bool,
    overwrite: bool,
    used: dict[str, str],
    say: Callable[[str], None],
) -> Exported:
    """Write the folder beside its place: whatever fails, nothing is left."""
    import torch

    if push is not None:
        check_push(push)
    for package in ("onnx", "onnxscript", "onnxruntime") if onnx else ():
        needed(package)
    collection = None if data is None else Collection.load(data, "test", skip_bad)
    if collection is not None:
        collection.rejects.warn()
    run = model_card.training_run(name) if Path(name).is_dir() else None
    model = as_encoder(name, "32", **used).cpu()
    fusion = read_fusion(name)
    difference, quantised = None, None
    with new_folder(out, overwrite, OURS) as folder:
        model.save(folder / "model")
        for path in list((folder / "model").iterdir()):
            path.rename(folder / path.name)
        (folder / "model").rmdir()
        if fusion is not None:
            save_fusion(folder, replace(fusion, data=model_card.shareable(fusion.data)))
        if onnx:
            difference = write_onnx(model, folder)
            say(f"ONNX: vectors differ from the model's by {difference:.1g} at most")
        if int8:
            share = write_int8(folder)
            threads = torch.get_num_threads()  # for all three
            plain, coded = OnnxEncoder(folder, threads=threads), OnnxEncoder(folder, INT8_FILE, threads)
            timed = speeds(model, plain, coded, list(collection.documents.values()) if collection else ())
            called = model_card.shareable(str(data))
            cost = None if collection is None else cost_of_int8(model, coded, collection, called)
            quantised = Int8(share, timed, cost)
            for line in quantised.lines():
                say(line)
        card = model_card.model_card(model, push or out.absolute().name, run, onnx, quantised)
        (folder / model_card.FILE).write_text(card, encoding="utf-8")
    url = None if push is None else push_folder(out, push, private)
    return Exported(out, onnx=difference, int8=quantised, url=url)
