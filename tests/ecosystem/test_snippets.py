"""The snippets of docs/integrations.md for packages that are not in our lock: `make test-ecosystem` runs them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
MODULES = {
    "langchain-core": "langchain_core",
    "llama-index-core": "llama_index.core",
    "haystack-ai": "haystack",
    "pylate": "pylate",
}
QUESTION = "how margins adapt"  # which is one of the documents, too


def best(package: str, names: dict[str, Any]) -> str:
    """The text that what a snippet made finds first."""
    if package == "langchain-core":
        return str(names["store"].similarity_search(QUESTION, k=1)[0].page_content)
    if package == "llama-index-core":
        return str(names["index"].as_retriever(similarity_top_k=1).retrieve(QUESTION)[0].text)
    found = names["pipeline"].run({"embedder": {"text": QUESTION}})["retriever"]["documents"]
    return str(found[0].content)


def snippets() -> dict[str, str]:
    blocks = re.findall(r"```python\n(# needs (\S+)\n.*?)```", PAGE.read_text(), re.DOTALL)
    return {package: code for code, package in blocks if package != "the"}  # the hub


@pytest.fixture(scope="module")
def folder(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and an index where the snippets expect them."""
    from remargin import BiEncoder, index

    place = tmp_path_factory.mktemp("ecosystem")
    rows = [f"how is number {i} made?,it is {i} times one" for i in range(60)]
    (place / "faq.csv").write_text("\n".join(["question,answer", *rows]))
    BiEncoder.from_pretrained(tiny_model(positions=256), pooling="mean").save(place / "runs" / "faq" / "model")
    index(place / "indexes" / "faq", data=f"pairs:{place / 'faq.csv'}", model=str(place / "runs" / "faq" / "model"))
    return place


@pytest.mark.parametrize("package", MODULES)
def test_snippet(package: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec(MODULES[package].split(".")[0]) is None:
        pytest.skip(f"{package} is not installed: make test-ecosystem")
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(snippets()[package], names)
    if package == "pylate":
        assert len(names["run"].rankings["q7"]) == 10
    else:
        assert best(package, names) == QUESTION
    if package == "langchain-core":
        found = names["RemarginRetriever"](index="indexes/faq", k=3).invoke("how is number 7 made?")
        assert len(found) == 3
        assert all("times one" in document.page_content for document in found)


def test_every_snippet_is_run() -> None:
    assert set(snippets()) == set(MODULES)
