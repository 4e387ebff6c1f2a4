"""Every system of the paper's table 5, and decoders, by their published layout: all scores are its library's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remargin import BiEncoder, Collection, ask, benchmark, evaluate, export, index, rerank, search
from remargin.errors import InputError
from remargin.evaluation.runs import Run

from . import checkpoints, decoders
from .checkpoints import Scores, assert_same

# How each checkpoint is made, from which family's backbone, and what has to be said because the folder does not.
SYSTEMS: dict[str, tuple[Callable[[Path, Path], tuple[str, Scores]], str, dict[str, str]]] = {
    "DPR": (checkpoints.dpr, "bert", {}),
    "DPR, projected": (partial(checkpoints.dpr, projection=24), "bert", {}),
    "ANCE": (checkpoints.ance, "roberta", {}),
    "ANCE, sentence-transformers": (checkpoints.ance_of_sentence_transformers, "roberta", {}),
    "TAS-B": (partial(checkpoints.of_sentence_transformers, pooling="cls"), "distilbert", {}),
    "Contriever": (checkpoints.contriever, "bert", {"pooling": "mean", "similarity": "dot"}),
    "RoBERTa": (checkpoints.papers, "roberta", {}),
    "MPNet": (checkpoints.papers, "mpnet", {}),
    "distilBERT": (checkpoints.papers, "distilbert", {}),
    "SPLADE": (checkpoints.splade, "bert-head", {}),
    "SPLADE, older": (partial(checkpoints.splade, older=True), "bert-head", {}),
    "ColBERT": (checkpoints.stanford, "bert", {}),
    "ColBERT, PyLate": (checkpoints.pylate, "bert", {}),
    "ColBERT, attending": (partial(checkpoints.pylate, attend_to_expansion_tokens=True), "bert", {}),
    "ColBERT, not expanding": (partial(checkpoints.pylate, do_query_expansion=False), "bert", {}),
    "Qwen3-Embedding": (partial(decoders.qwen3_embedding, task="query\n"), "bert", {}),
    "E5-Mistral": (decoders.e5_mistral, "bert", {}),
}
WORDS = [*"the a of margins adapt query document returns value list text model train test file".split()]  # noqa: SIM905


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty short texts, some with punctuation and capitals, and four queries."""
    rng = np.random.default_rng(0)
    lines = ["question,answer"]
    for row in range(40):
        words = rng.choice(WORDS, rng.integers(2, 9)).tolist()
        question = " ".join(rng.choice(WORDS, 3).tolist())
        lines.append(f'{question} {row},"{" ".join(words).capitalize()}{"; why? yes!" if row % 3 else ""} {row}"')
    path = tmp_path_factory.mktemp("texts") / "faq.csv"
    path.write_text("\n".join(lines))
    return path


class Case:
    """A system's checkpoint, a collection, and the scores that the system's own library gives."""

    def __init__(self, name: str, folder: Path, tiny_model: Any, data: Path) -> None:
        make, family, self.used = SYSTEMS[name]
        self.name = name
        head = {"head": True} if family.endswith("-head") else {}
        self.model, scores = make(folder / "model", tiny_model(family.removesuffix("-head"), **head))
        if name == "Contriever":
            export(folder / "converted", self.model, safetensors=True, say=lambda line: None)
            self.model = str(folder / "converted")
        self.collection = Collection.load(f"pairs:{data}", "test")
        texts = list(self.collection.documents.values())
        matrix = scores(list(self.collection.queries.values()), texts)
        self.run = Run.of(
            {
                query: dict(zip(self.collection.documents, row.tolist(), strict=True))
                for query, row in zip(self.collection.queries, matrix, strict=True)
            }
        )


@pytest.fixture(scope="module", params=SYSTEMS)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_model: Any, collection: Path
) -> Case:
    return Case(request.param, tmp_path_factory.mktemp("system"), tiny_model, collection)


def test_the_checkpoint_tells_texts_apart(case: Case) -> None:
    spreads = [max(ranking.values()) - min(ranking.values()) for ranking in case.run.rankings.values()]
    assert min(spreads) > 1e-3


def test_search_gives_the_scores_of_its_own_library(case: Case) -> None:
    assert_same(search(case.collection, "exact", case.model, **case.used), case.run)


def test_rerank_gives_the_scores_of_its_own_library(case: Case) -> None:
    first = Run.of({query: dict(list(ranking.items())[::-3]) for query, ranking in case.run.rankings.items()})
    expected = {query: {d: case.run.rankings[query][d] for d in ranking} for query, ranking in first.rankings.items()}
    assert_same(rerank(case.collection, case.model, first, **case.used), Run.of(expected))


def test_a_row_of_table_5_has_the_measures_of_its_own_library(case: Case, collection: Path, tmp_path: Path) -> None:
    expected = evaluate(case.run, case.collection.qrels, ["nDCG@10"]).means["nDCG@10"]
    data, quiet = [f"pairs:{collection}"], lambda line: None
    tables = benchmark({"system": case.model}, data, tmp_path / "out", bm25=False, say=quiet, **case.used)
    row = tables["table"].blocks[-1].rows[-1]
    assert [cell.text for cell in row][:2] == ["system", f"{expected:.3f}"]


def test_an_index_folder_gives_the_same(case: Case, collection: Path, tmp_path: Path) -> None:
    folder, data = tmp_path / "index", f"pairs:{collection}"
    if case.name.startswith("ColBERT"):
        with pytest.raises(InputError, match=r"late interaction.*; search without an index"):
            index(folder, data=data, model=case.model)
        return
    built = index(folder, data=data, model=case.model, **case.used)
    assert built.documents == len(case.collection.documents)
    sparse = case.name.startswith("SPLADE")
    assert (folder / "remargin_sparse.json").is_file() == sparse
    for ranking in case.run.rankings.values():
        for document in [document for document, score in ranking.items() if sparse and score == 0]:
            del ranking[document]
    assert_same(search(case.collection, folder), case.run)
    question, ranking = next(iter(case.collection.queries.values())), next(iter(case.run.rankings.values()))
    (answer,) = ask(question, folder, k=1)
    assert (answer.id, answer.text) == (next(iter(ranking)), case.collection.documents[answer.id])


def test_a_dense_system_is_saved_as_one_that_sentence_transformers_reads(
    tmp_path: Path, tiny_model: Any, collection: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    name, _ = checkpoints.ance(tmp_path / "ance", tiny_model("roberta"))
    model = BiEncoder.from_pretrained(name)
    model.save(tmp_path / "saved")
    again, theirs = BiEncoder.from_pretrained(tmp_path / "saved"), SentenceTransformer(str(tmp_path / "saved"))
    texts = ["how margins adapt", "a list"]
    assert model.encode_documents(texts) == pytest.approx(again.encode_documents(texts), abs=1e-6)
    assert model.encode_documents(texts) == pytest.approx(theirs.encode_document(texts), abs=1e-5)
    assert again.fingerprint() == model.fingerprint()
    assert theirs.similarity_fn_name == again.similarity == "dot"
