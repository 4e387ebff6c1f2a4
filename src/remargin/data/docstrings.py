"""Collections that every machine has: the docstrings of Python code. The summary line finds the rest.

Code is parsed with `ast`; nothing is imported or run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import inspect
import sysconfig
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from remargin.data.source import SPLITS, Judgment, Text
from remargin.data.splits import leaking_pairs, normalised, split_of
from remargin.data.tables import SKIP, Rejects
from remargin.errors import InputError
from remargin.files.shapes import encodable
from remargin.files.unpacking import read_small
from remargin.progress import track

# Folders that a user of the library does not read.
SKIPPED_FOLDERS = {"test", "tests", "testing", "site-packages", "dist-packages", "idlelib", "lib2to3", "__pycache__"}
SHORTEST_DOCUMENT = 5  # in words
LONGEST_SUMMARY = 300  # in characters
LARGEST_FILE = 10 << 20  # bytes; larger ones are tables, which a program wrote


class Docstring(NamedTuple):
    """The docstring of a module, class or function: its summary line, and the rest."""

    name: str
    module: str
    summary: str
    body: str
    file: str
    line: int


class Docstrings:
    """The docstrings of the standard library ("stdlib"), of installed packages, or of folders of code.

    A query is a summary line; its document is the rest of the docstring under its qualified name. Identical bodies are
    one document. Dev and test are whole modules that train does not see; train loses near-duplicates of them.
    """

    def __init__(self, packages: Sequence[str], rejects: Rejects) -> None:
        self.notes: dict[str, int] = {}
        self._rejects = rejects
        self._roots = [(package, find_code(package)) for package in (name.strip() for name in packages)]

    def documents(self) -> Iterator[Text]:
        """Each distinct docstring body once, by module and name."""
        return iter(self._collected.documents)

    def queries(self) -> Iterator[Text]:
        """Each distinct summary line that has a judgment, once."""
        return iter(self._collected.queries)

    def splits(self) -> list[str]:
        """Always all three, though a split of few modules may be empty."""
        return list(SPLITS)

    def judgments(self, split: str) -> Iterator[Judgment]:
        """One judgment for each summary line and body that belong together."""
        return iter(self._collected.judgments[split])

    @cached_property
    def _collected(self) -> _Collected:
        by_name: dict[str, Docstring] = {}
        for package, root in self._roots:
            for doc in self._read(package, root):
                by_name.setdefault(doc.name, doc)  # the first, where a name is defined twice, say for another system
        if not by_name:
            names = ", ".join(package for package, _ in self._roots)
            raise InputError(f"no docstrings with a summary line and more in {names}", do="name another package")
        documents: dict[str, Docstring] = {}
        pairs: dict[tuple[str, str], Docstring] = {}
        for doc in by_name.values():
            first = documents.setdefault(normalised(doc.body), doc)
            pairs.setdefault((normalised(doc.summary), first.name), doc)
        self.notes["docstrings"] = len(by_name)
        self.notes["identical documents merged"] = len(by_name) - len(documents)
        modules = {doc.name: doc.module for doc in documents.values()}
        splits = {name: split_of(module) for name, module in modules.items()}
        bodies = {doc.name: doc.body for doc in documents.values()}
        repeated, near = leaking_pairs(list(pairs), splits, bodies)
        self.notes["pairs dropped because a held-out split has their query"] = len(repeated)
        self.notes["train pairs dropped as near-duplicates of held-out documents"] = len(near)
        judgments: defaultdict[str, list[Judgment]] = defaultdict(list)
        queries: dict[str, Text] = {}
        for (key, name), doc in pairs.items():
            if (key, name) in repeated or (key, name) in near:
                continue
            query = queries.setdefault(key, Text(_query_id(key), doc.summary, doc.file, doc.line))
            judgments[splits[name]].append(Judgment(query.id, name, 1, doc.file, doc.line))
        texts = [Text(doc.name, f"{doc.name}\n{doc.body}", doc.file, doc.line) for doc in documents.values()]
        return _Collected(texts, list(queries.values()), judgments)

    def _read(self, package: str, root: Path) -> Iterator[Docstring]:
        """The docstrings below a folder, or of one file, in order of path and line."""
        named = all(part.isidentifier() for part in package.split("."))  # a package, not a path
        prefix = [] if package == "stdlib" else package.split(".") if named else [root.stem]
        files = [root] if root.is_file() else sorted(_python_files(root))
        for file in track(files, f"reading {package}", total=len(files)):
            parts = [] if root.is_file() else [*file.relative_to(root).parts[:-1], file.stem]
            module = ".".join([*prefix, *parts]).removesuffix(".__init__")
            try:
                with warnings.catch_warnings(action="ignore"):  # of the code read, not of ours
                    tree = ast.parse(read_small(file, LARGEST_FILE), filename=str(file))
            except InputError as error:
                self._rejects.add(error)
                continue
            except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
                line = getattr(error, "lineno", None)
                self._rejects.add(InputError(f"cannot be parsed ({error})", file=file, line=line, do=SKIP))
                continue
            for name, node in _public_definitions(tree, module):
                doc = _docstring(name, module, node, file)
                if doc:
                    yield doc


class _Collected(NamedTuple):
    documents: list[Text]
    queries: list[Text]
    judgments: defaultdict[str, list[Judgment]]


_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def find_code(package: str) -> Path:
    """The folder or file that holds a package's code, found without importing it.

    >>> find_code("json").name
    'json'
    """
    if package == "stdlib":
        return Path(sysconfig.get_path("stdlib"))
    do = "name an installed package, a folder of Python code such as ./src, or stdlib"
    if not all(part.isidentifier() for part in package.split(".")):
        if package and (Path(package).is_dir() or (package.endswith(".py") and Path(package).is_file())):
            return Path(package).resolve()
        raise InputError(f"no package or folder {package!r}", do=do)
    top, *inner = package.split(".")
    spec = importlib.machinery.PathFinder.find_spec(top)
    places = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    if spec and spec.origin and not places and spec.origin.endswith(".py"):
        places = [Path(spec.origin)]
    for place in places:
        path = place.joinpath(*inner)
        for candidate in (path, path.with_suffix(".py")):
            if candidate.exists():
                return candidate
    raise InputError(f"no Python code for package {package!r}", do=do)


def _python_files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*.py"):
        folders = path.relative_to(root).parts[:-1]
        if not SKIPPED_FOLDERS.intersection(folders) and not path.name.startswith(("test_", "__main__")):
            yield path


def _public_definitions(tree: ast.Module, module: str) -> Iterator[tuple[str, _Definition]]:
    """The module and its public classes and functions, with their qualified names."""
    stack: list[tuple[str, _Definition]] = [(module, tree)]
    while stack:
        name, node = stack.pop()
        yield name, node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inner = [child for child in _statements(node) if not child.name.startswith("_")]
        stack.extend((f"{name}.{child.name}", child) for child in reversed(inner))


def _statements(node: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The definitions in a module or class itself, also those under an `if` or a `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        elif isinstance(child, ast.If | ast.Try):
            yield from _statements(child)


def _docstring(name: str, module: str, node: _Definition, file: Path) -> Docstring | None:
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
    summary, _, body = text.partition("\n\n")
    summary, body = " ".join(summary.split()), body.strip()
    if not summary or len(summary) > LONGEST_SUMMARY or len(body.split()) < SHORTEST_DOCUMENT or not encodable(text):
        return None
    line = node.body[0].lineno if node.body else 1
    return Docstring(name, module, summary, body, str(file), line)


def _query_id(key: str) -> str:
    return "q" + hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
