"""An encoder as one ONNX file, with pooling and normalisation inside; and ONNX Runtime as an encoder.

The file takes `input_ids` and `attention_mask`, both (batch, sequence), and gives `embeddings`, (batch, d): of unit
length if the similarity is cosine. Any program that can pad token ids can use it.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from remargin.errors import InputError, first_line
from remargin.files.headers import read_json
from remargin.model.folder import read_settings, read_text_settings
from remargin.model.parts import INTACT
from remargin.model.tokenizer import TextSettings, Tokenizer, Tokens

if TYPE_CHECKING:
    from remargin.model.encoder import BiEncoder

FILE, INT8_FILE = "model.onnx", "model_int8.onnx"
INPUTS, OUTPUT = ("input_ids", "attention_mask"), "embeddings"
TOLERANCE = 1e-4  # of a number in a vector of unit length
ONE_FILE = 2_000_000_000  # bytes of weights; a protobuf cannot hold more, and larger ones have a file of their own
BATCH = 32

log = logging.getLogger(__name__)


def needed(package: str, extra: str = "onnx") -> Any:
    """A package that is optional.

    Raises:
        InputError: with the command that installs it.

    Example:
        >>> needed("onnx_of_tomorrow")
        Traceback (most recent call last):
        remargin.errors.InputError: onnx_of_tomorrow is not installed; pip install 'remargin[onnx]'
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(f"{package} is not installed", do=f"pip install 'remargin[{extra}]'") from None


class OnnxEncoder:
    """An encoder that ONNX Runtime computes, from a folder that `remargin export --onnx` wrote. Needs no torch.

    Args:
        folder: the folder, with the tokenizer and the settings of the model.
        file: which ONNX file in it.
        threads: how many CPU threads compute; without it, OMP_NUM_THREADS, else one for each core.

    Raises:
        InputError: if the folder has no such file, or ONNX Runtime is not installed or does not take the file.

    Example:
        >>> OnnxEncoder(model_folder)
        Traceback (most recent call last):
        remargin.errors.InputError: ...model.onnx: not found; name a folder that `remargin export --onnx` wrote
    """

    def __init__(self, folder: str | Path, file: str = FILE, threads: int | None = None) -> None:
        folder = Path(folder)
        if not (folder / file).is_file():
            raise InputError("not found", file=folder / file, do="name a folder that `remargin export --onnx` wrote")
        self.similarity = read_settings(folder).similarity
        self.text_settings = TextSettings(*read_text_settings(folder))
        self.tokenizer = _tokenizer(folder / "tokenizer.json")
        padding = read_json(folder / "config.json", INTACT).get("pad_token_id")
        self._padding = padding if isinstance(padding, int) else 0
        self._session = _session(folder / file, threads or int(os.environ.get("OMP_NUM_THREADS", "0")))
        self.dimension = int(self._session.get_outputs()[0].shape[1])

    def encode_queries(self, texts: Sequence[str], batch_size: int = BATCH) -> NDArray[np.float32]:
        """Vectors of queries, (n, d), in their order; of unit length if the similarity is cosine."""
        return self._encode("queries", texts, batch_size)

    def encode_documents(self, texts: Sequence[str], batch_size: int = BATCH) -> NDArray[np.float32]:
        """Vectors of documents, (n, d), in their order; of unit length if the similarity is cosine."""
        return self._encode("documents", texts, batch_size)

    def encode_tokens(self, tokens: Tokens, batch_size: int = BATCH) -> NDArray[np.float32]:
        """Vectors of texts that are tokens already, (n, d), in their order. Each batch is padded to its longest."""
        vectors = np.empty((len(tokens.lengths), self.dimension), np.float32)
        order = np.argsort(-tokens.lengths, kind="stable")
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            lengths = tokens.lengths[rows]
            mask = np.arange(lengths.max()) < lengths[:, None]
            ids = np.full(mask.shape, self._padding, np.int64)
            ids[mask] = np.concatenate(
                [tokens.ids[tokens.starts[row] : tokens.starts[row] + tokens.lengths[row]] for row in rows]
            )
            feed = dict(zip(INPUTS, (ids, mask.astype(np.int64)), strict=True))
            vectors[rows] = self._session.run([OUTPUT], feed)[0]
        return vectors

    def _encode(self, kind: Any, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
        if isinstance(texts, str):
            raise TypeError("pass a list of texts, not one string")
        length, prefix = self.text_settings.of(kind)
        tokens, truncated = self.tokenizer([prefix + text for text in texts], length)
        if truncated:
            log.warning("%d of %d %s were truncated to %d tokens", truncated, len(texts), kind, length)
        return self.encode_tokens(tokens, batch_size)


def _tokenizer(file: Path) -> Tokenizer:
    """A tokenizer without transformers, whose import takes longer than all else here."""
    try:
        return Tokenizer(tokenizers.Tokenizer.from_file(str(file)))
    except Exception as error:  # of Rust: it has no other class
        raise InputError(f"no tokenizer ({first_line(error)})", file=file, do=INTACT) from None


def _session(file: Path, threads: int) -> Any:
    runtime = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as our own threads, which sleep
    try:
        return runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of its own, for each status
        raise InputError(f"ONNX Runtime does not take it ({first_line(error)})", file=file, do=INTACT) from None


def write_onnx(model: BiEncoder, folder: Path) -> float:
    """Write model.onnx into the folder of a model, and check it against the model.

    `torch.onnx` has two exporters. The older one traces one example, and its files gave other vectors for texts of
    other lengths (up to 0.3 off); the one that is used here follows the code, whose shapes stay open.

    Args:
        model: the encoder, in float32 on a CPU.
        folder: where the same encoder was saved.

    Returns:
        The largest difference from a number in the model's own vectors, of some made-up texts.

    Raises:
        InputError: if torch cannot export the model, or the file gives other vectors than the model.
    """
    checker = needed("onnx").checker
    needed("onnxscript")
    file = folder / FILE
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    try:
        _export(model).save(str(file), external_data=size > ONE_FILE)
    except Exception as error:  # torch raises whatever its parts raise
        problem = f"cannot be exported to ONNX ({first_line(error)})"
        raise InputError(problem, file=model.name or None, do="leave --onnx out") from error
    _remove_traces(file)
    checker.check_model(str(file))
    difference = largest_difference(model, OnnxEncoder(folder))
    if not difference <= TOLERANCE:
        problem = f"as ONNX, vectors differ from the model's by {difference:.2g}, more than {TOLERANCE:g}"
        raise InputError(problem, file=model.name or None, do="leave --onnx out")
    return difference


def _export(model: BiEncoder) -> Any:
    import torch
    from torch import Tensor, nn

    class Embeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return model._similar(self.model(input_ids, attention_mask))

    ids = torch.full((2, 3), 1, dtype=torch.long)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    open_sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    with _quiet(), torch.no_grad():
        return torch.onnx.export(
            Embeddings().eval(),
            (ids, mask),
            input_names=INPUTS,
            output_names=[OUTPUT],
            dynamic_shapes=(open_sizes, open_sizes),
            dynamo=True,
            verbose=False,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings about packages that are not needed here, and about names of sizes."""
    theirs = logging.getLogger("torch.onnx")
    level = theirs.level
    theirs.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        theirs.setLevel(level)


def _remove_traces(file: Path) -> None:
    """Remove what torch notes beside every operation: the lines of code, with the paths of this machine."""
    onnx = needed("onnx")
    content = onnx.load(str(file), load_external_data=False)
    _clear_notes(content)
    onnx.save(content, str(file))


def _clear_notes(message: Any) -> None:
    for name in {"metadata_props", "doc_string"} & set(message.DESCRIPTOR.fields_by_name):
        message.ClearField(name)
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inside in [value] if hasattr(value, "ListFields") else value:
                _clear_notes(inside)


def largest_difference(model: BiEncoder, encoder: OnnxEncoder) -> float:
    """The largest difference between numbers of two encoders' vectors, relative to the vectors' length.

    The texts are made up: random tokens, of lengths from 1 to what the model reads, alone and padded.
    """
    longest = max(model.query_length, model.document_length)
    lengths = np.array([*range(1, min(longest, 20) + 1), longest // 2 or 1, longest, longest], np.int64)
    config: Any = model.backbone.config
    words = np.setdiff1d(np.arange(min(model.tokenizer.vocabulary, config.vocab_size)), [config.pad_token_id or 0])
    tokens = Tokens(np.random.default_rng(0).choice(words, lengths.sum()), lengths)
    theirs = model.encode_tokens(tokens)
    norms = np.linalg.norm(theirs, axis=1, keepdims=True).clip(1e-12)
    return max(float(np.abs((encoder.encode_tokens(tokens, size) - theirs) / norms).max()) for size in (1, 8))
