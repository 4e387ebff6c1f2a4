"""The package as a whole: what importing it costs, what it promises, and what the command line answers."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
import time
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import version
from pathlib import Path

import pytest

import remargin


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_importing_remargin_and_its_command_line_imports_no_torch() -> None:
    program = (
        "import sys, remargin, remargin.cli; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    assert run("-c", program).stdout.strip() == "[]"


def test_public_names_load_from_where_they_live() -> None:
    for name in remargin.__all__:
        assert getattr(remargin, name).__name__ == name
        assert name in dir(remargin)
    with pytest.raises(AttributeError, match="Nothing"):
        remargin.Nothing  # noqa: B018


def test_help_answers_in_under_half_a_second() -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        result = run("-m", "remargin", "--help")
        times.append(time.perf_counter() - start)
        assert result.returncode == 0
        assert "prepare" in result.stdout
    assert min(times) < 0.5


def test_version_is_the_installed_one() -> None:
    assert remargin.__version__ == version("remargin")
    assert run("-m", "remargin", "--version").stdout.strip() == f"remargin {remargin.__version__}"


def test_info_names_versions_and_devices() -> None:
    result = run("-m", "remargin", "info")
    assert result.returncode == 0
    assert f"remargin {remargin.__version__}" in result.stdout
    assert "GPUs:" in result.stdout


def test_the_package_is_typed() -> None:
    assert (Path(remargin.__file__).parent / "py.typed").is_file()


# Every module and package of remargin, from the bottom up. Each imports only from the lines above its own.
RANKS = (
    ("__init__", "errors", "versions"),
    ("progress",),
    ("files", "losses"),
    ("model",),
    ("data",),
    ("evaluation",),
    ("report", "retrieval"),
    ("mining",),
    ("teacher",),
    ("training",),
    ("experiments",),
    ("demo",),
    ("cli",),
    ("__main__",),
)


def our_modules() -> dict[str, Path]:
    source = Path(remargin.__file__).parent
    files = {".".join(path.relative_to(source.parent).with_suffix("").parts): path for path in source.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in files.items()}


def imported(code: str) -> set[str]:
    """What a module imports, also inside functions and by `import_module`; but not for type checkers alone."""
    found: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(code)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def import_graph() -> dict[str, set[str]]:
    """Each module, and those of our own that it imports. A public name counts as the module that it lives in."""
    modules = our_modules()
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        graph[module] = set()
        for name in imported(path.read_text()):
            package, _, last = name.rpartition(".")
            home = remargin._HOMES.get(last, package) if package == "remargin" else package
            target = name if name in modules else home
            if target in modules and target != module:
                graph[module].add(target)
    return graph


def test_all_imports_are_seen() -> None:
    code = """
        import a.b
        from c import d
        if TYPE_CHECKING:
            import no
        else:
            import e
        def f():
            if x:
                from g import h
            importlib.import_module("i.j")
    """
    assert imported(textwrap.dedent(code)) == {"a.b", "c.d", "e", "g.h", "i.j"}
    graph = import_graph()
    assert {"remargin.data.source", "remargin.data.pairs"} <= graph["remargin.data.collection"]
    assert "remargin.retrieval.index_folder" in graph["remargin.retrieval.searching"]  # inside a function
    assert "remargin.model.encoder" not in graph["remargin.retrieval.searching"]  # for type checkers
    assert {"remargin.model.tokenizer", "remargin.model.kernels"} <= graph["remargin.model.packing"]
    assert graph["remargin.training.loop"] > {"remargin.model.encoder", "remargin.training.batches"}
    assert graph["remargin.__main__"] == {"remargin.cli"}
    assert graph["remargin"] == set()


def test_imports_point_one_way() -> None:
    """From cli down to losses and errors: the order of `RANKS`, read backwards."""
    rank = {name: number for number, names in enumerate(RANKS) for name in names}
    rooms = {module: [*module.split("."), "__init__"][1] for module in our_modules()}
    assert {*rooms.values()} == {*rank}, "a module without a rank, or a rank without a module"
    upwards = [
        f"{module} imports {other}"
        for module, others in import_graph().items()
        for other in others
        if rooms[module] != rooms[other] and rank[rooms[module]] <= rank[rooms[other]]
    ]
    assert not upwards


def test_no_imports_go_in_circles() -> None:
    graph = import_graph()
    TopologicalSorter(graph).prepare()  # raises a CycleError that names the modules
    graph["remargin.data.source"].add("remargin.data.collection")
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()
