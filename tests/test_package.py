"""The package as a whole: what importing it costs, what it promises, and what the command line answers."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
import textwrap
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

import remargin
from remargin.cli import app


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_importing_remargin_and_its_command_line_imports_no_torch() -> None:
    program = (
        "import sys, remargin, remargin.cli; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    assert run("-c", program).stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["remargin.model.tokenizer", "remargin.model.folder", "remargin.data.preparation"])
def test_what_prepares_texts_imports_no_torch(module: str) -> None:
    heavy = "('torch', 'transformers', 'lightning_fabric')"
    assert run("-c", f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])").stdout.strip() == "[]"


def test_every_verb_is_a_function_of_the_same_name() -> None:
    verbs = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert len(verbs) >= 20
    assert verbs <= set(remargin.__all__)
    for verb in verbs:
        function = getattr(remargin, verb)
        assert callable(function)
        assert not (Path(remargin.__file__).parent / verb).exists(), "a room of that name would hide the function"
        assert function.__module__.split(".")[-1] != verb, "a module of that name would hide it in its room"
        assert ">>>" in function.__doc__, verb


def test_no_file_is_longer_than_400_lines() -> None:
    root = Path(__file__).parents[1]
    files = [path for folder in ("src", "tests") for path in (root / folder).rglob("*.py")]
    assert len(files) > 200
    long = {str(path.relative_to(root)) for path in files if len(path.read_text().splitlines()) > 400}
    assert not long


def test_the_top_of_the_package_is_a_few_rooms() -> None:
    top = [path for path in Path(remargin.__file__).parent.iterdir() if path.name != "__pycache__"]
    assert len([path for path in top if path.is_dir()]) <= 16
    loose = {"__init__.py", "__main__.py", "errors.py", "progress.py", "versions.py", "py.typed"}
    assert {path.name for path in top if not path.is_dir()} == loose


def test_importing_every_module_changes_nothing_global() -> None:
    program = """
        import importlib, logging, pkgutil, sys, torch, transformers, remargin
        from torch.optim import optimizer
        def state():
            filters = [log for log in logging.root.manager.loggerDict.values() if getattr(log, "filters", None)]
            hooks = len(optimizer._global_optimizer_pre_hooks) + len(optimizer._global_optimizer_post_hooks)
            return hooks, len(filters), torch.get_num_threads(), torch.initial_seed(), torch.get_default_dtype()
        import lightning_fabric, faiss
        before, attentions = state(), sorted(transformers.AttentionInterface())
        for module in pkgutil.walk_packages(remargin.__path__, "remargin."):
            if not module.name.startswith(("remargin.model.kernels", "remargin.__main__")):
                importlib.import_module(module.name)
        print(state() == before and sorted(transformers.AttentionInterface()) == attentions)
    """
    result = run("-c", textwrap.dedent(program))
    assert result.stdout.strip() == "True", result.stderr


def test_public_names_load_from_where_they_live() -> None:
    for name in remargin.__all__:
        assert getattr(remargin, name).__name__ == name
        assert name in dir(remargin)
    with pytest.raises(AttributeError, match="Nothing"):
        remargin.Nothing  # noqa: B018


def cpu_seconds_of_children() -> float:
    """CPU time of all processes that this one started and that ended: unlike wall time, much the same at any load."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_help_answers_in_under_half_a_second() -> None:
    times = []
    for _ in range(5):
        before = cpu_seconds_of_children()
        result = run("-m", "remargin", "--help")
        times.append(cpu_seconds_of_children() - before)
        assert result.returncode == 0
        assert "prepare" in result.stdout
    assert min(times) < 0.4  # and the rest of the half second to read its files


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
    ("reports", "retrieval"),
    ("mining",),
    ("teacher",),
    ("training",),
    ("study",),
    ("paper",),
    ("integrations", "serving"),
    ("demos",),
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
