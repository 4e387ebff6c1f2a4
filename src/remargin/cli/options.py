"""Options that several verbs share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from remargin.cli.config import read_config
from remargin.errors import InputError
from remargin.files.atomic import is_scratch, resolved
from remargin.progress import tell

if TYPE_CHECKING:
    from remargin.data.collection import Collection
    from remargin.evaluation.runs import Run
    from remargin.model.encoder import BiEncoder


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        names = [p.name for p in context.command.params if p.name and p.name not in ("config", "help")]
        lists = [p.name for p in context.command.params if p.name and getattr(p, "multiple", False)]
        flags = [p.name for p in context.command.params if p.name and getattr(p, "is_flag", False)]
        context.default_map = read_config(path, known=names, lists=lists, flags=flags)
    return path


class ManyValues(TyperCommand):
    """A verb whose list options take several values after one flag: `--runs a b` is `--runs a --runs b`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the flag before each further value, and parse that."""
        flags = {flag for param in self.params if getattr(param, "multiple", False) for flag in param.opts}
        return super().parse_args(ctx, repeat_flags(args, flags))


def repeat_flags(arguments: list[str], flags: set[str]) -> list[str]:
    """The arguments with the flag repeated before each of its values, for those flags that take several.

    >>> repeat_flags(["--runs", "a", "b", "--bound", "0.1", "--runs=c", "d"], {"--runs"})
    ['--runs', 'a', '--runs', 'b', '--bound', '0.1', '--runs=c', '--runs', 'd']
    >>> repeat_flags(["--values", "-0.5", "-1e-1"], {"--values"})
    ['--values', '-0.5', '--values', '-1e-1']
    """
    repeated: list[str] = []
    flag: str | None = None  # whose values these are
    has_value = False
    for argument in arguments:
        if argument.startswith("-") and not re.match(r"-\.?\d", argument):  # a number is a value
            name, equals, _ = argument.partition("=")
            flag, has_value = name if name in flags else None, bool(equals)
        elif flag is not None:
            repeated += [flag] if has_value else []
            has_value = True
        repeated.append(argument)
    return repeated


def refuse_idle(context: typer.Context, idle: Mapping[str, Sequence[str]]) -> None:
    """Refuse options that were given but have no effect. `idle` lists their names by what they have no effect on."""
    for what, names in idle.items():
        for name in names:
            source = context.get_parameter_source(name)
            if source is not None and source.name != "DEFAULT":
                raise InputError(f"--{name.replace('_', '-')} does nothing for {what}", do="leave it out")


def is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line, and not by a configuration or by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def require_ours(out: Path) -> None:
    """Refuse a folder for a study that has files in it, unless they are those of a study."""
    if resolved(out).exists() and not out.is_dir():
        raise InputError("is not a folder", file=out, do="choose another place")
    ours = [out / "study.json", out / "loss-geometry" / "section.json"]
    if not out.exists() or any(path.exists() for path in ours):
        return
    if any(path.name != "loss-geometry" and not is_scratch(path) for path in out.iterdir()):  # one that was stopped
        raise InputError("has other files in it", file=out, do="choose another place")


def measure_names(given: list[str] | None, default: Sequence[str]) -> list[str]:
    """The measures that were asked for, or the default ones. A value may hold several, with spaces between them.

    >>> measure_names(["nDCG@10 R@1000", "RR"], ["RR"]), measure_names(None, ["RR"])
    (['nDCG@10', 'R@1000', 'RR'], ['RR'])
    """
    return [name for value in given or [] for name in value.split()] or list(default)


def require_judged(run: Run, path: Path, collection: Collection) -> None:
    """Refuse a run of which no query is judged: it would measure 0 everywhere, which would mean nothing."""
    if not run.rankings.keys() & collection.qrels.keys():
        problem = f"none of its queries is judged in split {collection.split!r} of {collection.name}"
        raise InputError(problem, file=path, do="give the split or the collection that it was made for")


def load_collection(data: str, split: str, skip_bad: bool) -> Collection:
    """The collection; what was skipped is counted on standard error."""
    from remargin.data.collection import Collection

    collection = Collection.load(data, split, skip_bad)
    say_skipped(collection.rejects.count, collection.rejects.first)
    return collection


def say_skipped(count: int, first: object) -> None:
    """Count on standard error what was skipped, and show the first of it, if there is any."""
    from remargin.data.tables import SKIP

    if count:
        done = str(first).removesuffix(f"; {SKIP}")  # that advice has been followed
        tell(f"skipped bad input: {count:,}, the first is {done}", error=True)


def load_encoder(model: str, compute: str = "auto", **lengths: int | None) -> BiEncoder:
    """Load the encoder to search with. A cross-encoder is refused: it would load, but its vectors are useless."""
    from remargin.model.cross_encoder import is_cross_encoder
    from remargin.model.encoder import BiEncoder

    if is_cross_encoder(model):
        raise InputError(f"{model} is a cross-encoder", do="re-rank with it (`remargin rerank`), or give an encoder")
    return BiEncoder.from_pretrained(model, precision=compute, **lengths)  # type: ignore[arg-type]


def _set_threads(threads: int | None) -> int | None:
    """Have PyTorch, FAISS and the tokenizers compute with so many threads. They read it when they are loaded."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(threads)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
    return threads


Threads = Annotated[
    int | None,
    typer.Option(min=1, callback=_set_threads, help="CPU threads to compute with.", show_default="one for each core"),
]
Config = Annotated[
    Path | None,
    typer.Option(callback=_load, is_eager=True, help="A YAML file of these options; flags override it."),
]
_DATA = typer.Option(
    help="The collection: a BEIR folder, irds:NAME, docstrings:PACKAGE,PACKAGE (or stdlib, or a folder of code), "
    "or pairs:FILE (CSV, TSV, JSONL or Parquet; 'pairs:FILE?query=COLUMN&document=COLUMN', quoted, names the columns)."
)
Data = Annotated[str | None, _DATA]
RequiredData = Annotated[str, _DATA]
Model = Annotated[str | None, typer.Option(help="The encoder: a folder or a Hugging Face name.")]
EncodingPrecision = Annotated[
    str, typer.Option(help="Numeric precision to compute in: 32, bf16, or auto (bf16 on a GPU, 32 on a CPU).")
]
Measures = Annotated[
    list[str] | None,
    typer.Option("--measures", "--measure", help="ir_measures names: --measures nDCG@10 R@1000."),
]
Split = Annotated[str, typer.Option(help="Which of the collection's splits.")]
SkipBad = Annotated[bool, typer.Option(help="Set bad input aside, count it, and go on.")]
Overwrite = Annotated[bool, typer.Option(help="Replace the output if it is already there.")]
