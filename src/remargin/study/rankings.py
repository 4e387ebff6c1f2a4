"""What can be measured of a run: full rankings of a study's test queries, and of other collections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from remargin.data.collection import Collection
from remargin.errors import InputError
from remargin.evaluation.measures import Evaluation
from remargin.model.encoder import BiEncoder
from remargin.study.blending import kind_of
from remargin.study.columns import Column, stems
from remargin.study.full_ranking import FullRanking
from remargin.study.plan import EXACT
from remargin.study.results import LAST, TEST, ZERO_SHOT, ZERO_SHOT_LAST

SMALL = 100_000  # documents of a collection that stays in memory


class Rankings:
    """Measures models, or BM25, on the collections of a study. Each is read when it is first needed.

    Args:
        data: the study's own collection.
        tests: further collections for tables 3 and 4, by what they are called among a run's scores.
        zero_shot: collections for table 5.
        relevant: the lowest grade that R counts, in `data` and `tests`; in the others it is 1, as in BEIR.
        say: gets a line for people now and then.
        index: what searches `data` and `tests`: exact, or faiss, the paper's index.
    """

    def __init__(
        self,
        data: str,
        tests: Mapping[str, Column],
        zero_shot: Sequence[Column],
        relevant: int,
        say: Callable[[str], None],
        index: str = EXACT,
    ) -> None:
        own = {what: {"": (data, "test")} for what in (TEST, LAST)}
        further = {what: {"": (column.parts[0], column.split)} for what, column in tests.items()}
        others = {
            what: {
                f"/{stem}": (part, column.split)
                for column in zero_shot
                for part, stem in zip(column.parts, stems(column), strict=True)
            }
            for what in (ZERO_SHOT, ZERO_SHOT_LAST)
        }
        self._sources: dict[str, dict[str, tuple[str, str]]] = own | further | others  # by what follows in file names
        self._own = [(data, "test"), *(source for sources in further.values() for source in sources.values())]
        self._relevant, self._say, self._index = relevant, say, index
        self._kept: dict[tuple[str, str], FullRanking] = {}

    def __contains__(self, what: str) -> bool:
        """Whether it can be measured: a study that goes on need not be told of all collections again."""
        return bool(self._sources.get(kind_of(what)))

    def measure(self, what: str, model: BiEncoder | None, backbone: str) -> Iterator[tuple[str, Evaluation]]:
        """The scores of every query, with the name of their file. Without a model it is BM25 that ranks."""
        for name, (data, split) in self._sources[kind_of(what)].items():
            yield f"{what}{name}.csv.gz", self._ranking(data, split).measure(model, backbone)

    @property
    def queries(self) -> dict[str, str]:
        """The study's own test queries."""
        return self._ranking(*self._own[0]).collection.queries

    def require_several_queries(self) -> None:
        """Systems are compared query by query, which takes two at least: better said before training than after."""
        for data, split in self._own:
            if len(self._ranking(data, split).collection.queries) < 2:
                do = "choose another collection: systems are compared query by query"
                raise InputError(f"one judged query in split {split!r}", file=data, do=do)

    def require_index(self, backbones: Iterable[str]) -> None:
        """See that the index can be made of the vectors of these backbones: better said before training than after."""
        if self._index == EXACT:
            return
        for dimension in {BiEncoder.from_pretrained(path).dimension for path in backbones}:
            for data, split in self._own:
                self._ranking(data, split).require_index(dimension)

    def _ranking(self, data: str, split: str) -> FullRanking:
        """All documents of a collection; large ones, but for the study's own, are read anew each time."""
        if (data, split) in self._kept:
            return self._kept[data, split]
        own = (data, split) in self._own
        collection = Collection.load(data, split, skip_bad=not own)
        if collection.rejects.count:
            self._say(f"{data}: skipped bad input, {collection.rejects.describe()}")
        ranking = FullRanking(collection, self._relevant, self._index) if own else FullRanking(collection)
        if (data, split) == self._own[0] or len(collection.documents) <= SMALL:
            self._kept[data, split] = ranking
        return ranking
