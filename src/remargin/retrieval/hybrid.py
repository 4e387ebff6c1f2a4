"""Hybrid retrieval: BM25 and an encoder fused, with a weight that a dev split chose.

The scores of both are scaled to 0..1 for each query, over the documents that each of them ranks down to a fixed depth,
and added up: see `remargin.retrieval.fusion.weighted`. Nothing but the query's own two rankings is needed for that, so
a question that comes later is treated just as those of the dev split were.
"""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from remargin.errors import InputError
from remargin.evaluation.inputs import Judgments
from remargin.evaluation.measures import evaluate
from remargin.evaluation.runs import Run
from remargin.files.headers import format_of, read_record, write_header
from remargin.files.shapes import Check, Finite, Size
from remargin.model.folder import local_folder
from remargin.model.names import two_names
from remargin.retrieval.bm25 import check_parameters
from remargin.retrieval.fusion import tune_weight, weighted
from remargin.retrieval.languages import AUTO, ENGLISH, LANGUAGES, check_language

if TYPE_CHECKING:
    from remargin.retrieval.bm25 import BM25
    from remargin.retrieval.dense import DenseIndex

FILE = "fusion.json"  # in a model folder
FORMAT = "remargin-fusion-2"
BEFORE = "remargin-fusion-1"  # of English alone: without a language
REMEDY = "delete it to search with the encoder alone, or train the model again"
DEPTH = 1000  # documents of each ranking that are scaled and added up, as many as `search` and `fuse` take by default
# The fusion has to be better on dev than the encoder alone by more than this: a smaller difference means little, and
# does not pay for an index of words beside the vectors.
WORTHWHILE = 0.005
Weight = Annotated[float, Check("between 0 and 1", lambda value: 0 <= value <= 1)]
Choice = Literal["auto", "on", "off"]
Language = Annotated[str, Check("a language of BM25", LANGUAGES.__contains__)]


@dataclass(frozen=True)
class Fusion:
    """What a dev split says of BM25 and an encoder, fused. The model folder keeps it, in fusion.json.

    Attributes:
        weight: of the encoder's scores, 0 to 1; BM25's have the rest.
        measure: what `bm25`, `dense` and `fused` are means of, over the dev queries.
        bm25: of BM25 alone.
        dense: of the encoder alone.
        fused: of both with that weight. It was chosen on the same queries, so this is not what to expect of others.
        depth: how many documents of each ranking were scaled and added up.
        data: the collection that the weight was chosen on.
        split: its split.
        normalisation: how scores were scaled, for each query.
        language: that BM25 split the texts into terms by.
    """

    weight: Weight
    measure: str
    bm25: Finite
    dense: Finite
    fused: Finite
    depth: Size = DEPTH
    data: str = ""
    split: str = "dev"
    normalisation: Literal["min-max"] = "min-max"
    language: Language = ENGLISH

    def fuse(self, bm25: Run, dense: Run, k: int = 1000) -> Run:
        """Fuse other rankings by BM25 and the same encoder, such as those of a test split, as a search would.

        >>> words, dense = Run.of({"q": {"a": 9.0, "b": 2.0, "c": 1.0}}), Run.of({"q": {"b": 0.8, "a": 0.4}})
        >>> Fusion(0.25, "RR", 0.5, 0.5, 0.6, depth=2).fuse(words, dense).rankings
        {'q': {'a': 0.75, 'b': 0.25}}
        """
        return _fused(bm25, dense, self.weight, self.depth, k)

    @property
    def pays(self) -> bool:
        """Whether the fusion is better on dev than the encoder alone, by more than `WORTHWHILE`."""
        return self.fused - self.dense > WORTHWHILE


def _fused(bm25: Run, dense: Run, weight: float, depth: int, k: int) -> Run:
    """The k best documents by the weighted sum over the first `depth` of each ranking."""
    first, second = (Run.of(run.rankings, depth) for run in (bm25, dense))
    return weighted(first, second, weight, k)


def choose_fusion(
    bm25: Run,
    dense: Run,
    qrels: Judgments,
    measure: str = "nDCG@10",
    depth: int = DEPTH,
    data: str = "",
    split: str = "dev",
    language: str = ENGLISH,
) -> Fusion:
    """Choose the weight of BM25 and an encoder on a dev split, as `fuse --tune` does, and say what it brings there.

    Args:
        bm25: the ranking of the dev queries by BM25, without documents that are the query itself, as `search` gives it.
        dense: their ranking by the encoder, likewise.
        qrels: the judgments of the dev split.
        measure: to choose by.
        depth: how many documents of each ranking to use, in searches as well. The rankings should be that deep, or
            have all documents.
        data: the name of the collection, for the record.
        split: the name of the split, for the record.
        language: of `bm25`; see `BM25.language`. Searches will take the same.

    Raises:
        InputError: if none of the queries is judged, or the runs have no queries in common.

    Example:
        >>> words = Run.of({"q1": {"a": 9.0, "b": 2.0}, "q2": {"b": 4.0, "c": 3.0, "a": 1.0}})
        >>> dense = Run.of({"q1": {"b": 0.8, "a": 0.7, "c": 0.1}, "q2": {"c": 0.9, "a": 0.8, "b": 0.1}})
        >>> fusion = choose_fusion(words, dense, {"q1": {"a": 1}, "q2": {"c": 1}}, "RR")
        >>> fusion.bm25, fusion.dense, fusion.fused, fusion.pays
        (0.75, 0.75, 1.0, True)
    """
    if depth < 1:
        raise InputError(f"a fusion of {depth} documents", do="use a depth of at least 1")
    first, second = (Run.of(run.rankings, depth) for run in (bm25, dense))
    weight, means = tune_weight(first, second, qrels, measure, depth=depth)
    words, vectors = (evaluate(run, qrels, [measure]).means[measure] for run in (first, second))
    return Fusion(weight, measure, words, vectors, means[weight], depth, data, split, language=language)


def save_fusion(folder: str | Path, fusion: Fusion) -> None:
    """Keep a fusion in the folder of its encoder, where `index` and `search` find it. Replaces an older one.

    >>> import tempfile
    >>> save_fusion(folder := tempfile.mkdtemp(), Fusion(0.4, "nDCG@10", 0.61, 0.57, 0.65))
    >>> read_fusion(folder).weight, read_fusion(folder).pays
    (0.4, True)
    """
    write_header(Path(folder) / FILE, {"format": FORMAT, **asdict(fusion)})


def read_fusion(model: str | Path) -> Fusion | None:
    """What a model says of its fusion with BM25; None if it says nothing.

    Args:
        model: its folder, or its Hugging Face name.

    Raises:
        InputError: if there is no such model, or its fusion.json is damaged.

    Example:
        >>> read_fusion(model_folder) is None
        True
    """
    if two_names(model) is not None:
        return None
    path = local_folder(model) / FILE
    if not path.exists():
        return None
    return read_record(path, Fusion, BEFORE if format_of(path) == BEFORE else FORMAT, REMEDY)


@dataclass(frozen=True)
class HybridSettings:
    """How an index fuses BM25 and its encoder.

    Attributes:
        weight: of the encoder's scores, 0 to 1; BM25's have the rest.
        depth: how many documents of each ranking are scaled and added up.
        from_dev: that a dev split chose the weight.
        k1: BM25's term-frequency saturation; this and the next two as in `BM25`.
        b: its length normalisation.
        language: that it splits texts into terms by; "auto" until an index is made, which keeps the one that it chose.
    """

    weight: Weight
    depth: Size = DEPTH
    from_dev: bool = False
    k1: Annotated[Finite, Check("0 or more", lambda value: value >= 0)] = 0.9
    b: Annotated[float, Check("between 0 and 1", lambda value: 0 <= value <= 1)] = 0.4
    language: Language = ENGLISH

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise InputError(f"a weight of {self.weight}", do="use 0 (only BM25) to 1 (only the encoder)")
        check_parameters(self.k1, self.b)
        if self.language != AUTO:
            check_language(self.language)

    def __str__(self) -> str:
        """A line for people.

        >>> print(HybridSettings(0.4, from_dev=True))
        BM25 and the encoder fused, weight 0.4 from dev
        """
        return f"BM25 and the encoder fused, weight {self.weight:g}{' from dev' if self.from_dev else ''}"

    def weighing(self, choice: Choice | float) -> HybridSettings:
        """The same, with another weight if the choice is one."""
        return self if isinstance(choice, str) else replace(self, weight=choice, from_dev=False)


def read_choice(hybrid: str | float) -> Choice | float:
    """What `--hybrid` says: "auto", "on", "off", or the encoder's weight.

    >>> read_choice("auto"), read_choice("0.4"), read_choice(1)
    ('auto', 0.4, 1.0)
    """
    if hybrid in ("auto", "on", "off"):
        return hybrid  # type: ignore[return-value]
    try:
        weight = float(hybrid)
    except (TypeError, ValueError):
        weight = -1.0
    if isinstance(hybrid, bool) or not 0 <= weight <= 1:
        do = "use auto, on, off, or the encoder's weight: 0 (only BM25) to 1 (only the encoder)"
        raise InputError(f"--hybrid {hybrid}", do=do)
    return weight


def chosen_hybrid(choice: Choice | float, model: str | Path) -> HybridSettings | None:
    """How to fuse a model with BM25, by what was asked for and by what its folder says; None for the model alone.

    Raises:
        InputError: for "on" if the model does not say with which weight.

    Example:
        >>> chosen_hybrid("auto", model_folder), chosen_hybrid(0.5, model_folder).weight
        (None, 0.5)
    """
    if choice == "off":
        return None
    if not isinstance(choice, str):
        fusion = read_fusion(model) if has_folder(model) else None
        return HybridSettings(choice, language=AUTO if fusion is None else fusion.language)
    fusion = read_fusion(model)
    if fusion is None and choice == "on":
        problem = f"no {FILE} in it, so no dev split has chosen a weight for BM25 and the encoder"
        raise InputError(problem, file=model, do="give the encoder's weight: --hybrid 0.5")
    if fusion is None or (choice == "auto" and not fusion.pays):
        return None
    return HybridSettings(fusion.weight, fusion.depth, from_dev=True, language=fusion.language)


def has_folder(model: str | Path) -> bool:
    """Whether a model is still where its name says."""
    try:
        return bool(model) and two_names(model) is None and local_folder(model).is_dir()
    except InputError:
        return False


class HybridIndex:
    """Ranks documents by the weighted sum of BM25's scores and an encoder's, each scaled to 0..1 for each query.

    A score is that sum: it goes from 0 to 1, and says nothing across queries. Whatever `k` is, both rankings are
    `settings.depth` deep before they are scaled, so the first documents are the same for every `k`.

    Args:
        dense: the documents' vectors.
        bm25: their words; None if no document has any.
        settings: the weight and the depth.

    Example:
        >>> from remargin import BiEncoder
        >>> from remargin.retrieval.bm25 import BM25
        >>> from remargin.retrieval.dense import DenseIndex
        >>> from remargin.retrieval.vectors import Vectors
        >>> model = BiEncoder.from_pretrained(model_folder)
        >>> documents = {"d1": "margins adapt", "d2": "queries find documents", "d3": "nothing here"}
        >>> dense = DenseIndex(model, Vectors.of(model, documents))
        >>> hybrid = HybridIndex(dense, BM25(documents), HybridSettings(weight=0.4))
        >>> hybrid.search({"q": "margins adapt"}, k=1).rankings
        {'q': {'d1': 1.0}}
    """

    def __init__(self, dense: DenseIndex, bm25: BM25 | None, settings: HybridSettings) -> None:
        self.dense = dense
        self.bm25 = bm25
        self.settings = settings

    @property
    def data(self) -> str:
        """The collection that the index was made of, as it was named then."""
        return self.dense.data

    def __len__(self) -> int:
        return len(self.dense)

    def search(self, queries: Mapping[str, str], k: int = 1000, self_matches: Several[str] = ()) -> Run:
        """The k best documents of each query; fewer, if both rankings down to `settings.depth` have fewer.

        Queries in `self_matches` are themselves documents, of the same id. These are left out before scores are
        scaled: nothing is as near to a query as itself, and all others would be squeezed together.
        """
        if not queries:
            return Run({})
        depth, itself = self.settings.depth, [(id, id) for id in self_matches]
        dense = self.dense.search(queries, depth + bool(itself))
        words = Run({query: {} for query in queries})
        if self.bm25 is not None:
            words = self.bm25.search(queries, depth + bool(itself))
        return _fused(words.without(itself), dense.without(itself), self.settings.weight, depth, k)

    def lacking(self, documents: Sequence[str]) -> int:
        """How many of these documents are not in the index."""
        return self.dense.lacking(documents)
