"""The public benchmarks of dense retrieval, by the names that ir_datasets has for them.

Known pitfalls, and how they are handled here:

- A BEIR document is its title and its text; a query is its text alone, without the narrative, keywords or tags that
  Touché-2020, TREC-COVID and CQADupStack have as well. ir_datasets' default text is just that.
- In ArguAna and Quora the query is a document itself; see `Collection.self_matches`.
- CQADupStack is twelve collections. Its value is the mean of the twelve means, not the mean over all queries.
- Touché-2020 is version 2, with the corrected judgments. Its first version gives quite other values.
- BEIR measures MS MARCO on dev. Its test split is TREC-DL 2019.
- Grades: nDCG takes them as gains. TREC-DL counts 2 and more as relevant in all other measures: R(rel=2)@1000,
  Success(rel=2)@100.
- Unjudged documents count as not relevant; `Evaluation.judged` says how many there are.
- Documents without text are kept and counted; judgments may name them.
- Judgments for documents that the corpus lacks stop the load. `skip_bad` sets them aside.
"""

from __future__ import annotations

from dataclasses import dataclass

_FORUMS = (
    *("android", "english", "gaming", "gis", "mathematica", "physics"),
    *("programmers", "stats", "tex", "unix", "webmasters", "wordpress"),
)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its short name, as in the paper's table, its full one, and the collections that it consists of.

    Example:
        >>> BEIR[0]
        Benchmark(short='TCV', name='TREC-COVID', irds=('beir/trec-covid',), split='test')
        >>> BEIR[0].data
        ['irds:beir/trec-covid']
    """

    short: str
    name: str
    irds: tuple[str, ...]
    split: str = "test"

    @property
    def data(self) -> list[str]:
        """What `Collection.load` and `--data` take."""
        return [f"irds:{name}" for name in self.irds]


BEIR = (
    Benchmark("TCV", "TREC-COVID", ("beir/trec-covid",)),
    Benchmark("NFC", "NFCorpus", ("beir/nfcorpus/test",)),
    Benchmark("NQ", "Natural Questions", ("beir/nq",)),
    Benchmark("HQA", "HotpotQA", ("beir/hotpotqa/test",)),
    Benchmark("FQA", "FiQA-2018", ("beir/fiqa/test",)),
    Benchmark("AgA", "ArguAna", ("beir/arguana",)),
    Benchmark("T20", "Touché-2020", ("beir/webis-touche2020/v2",)),
    Benchmark("CDS", "CQADupStack", tuple(f"beir/cqadupstack/{forum}" for forum in _FORUMS)),
    Benchmark("QUO", "Quora", ("beir/quora/test",)),
    Benchmark("DBP", "DBPedia", ("beir/dbpedia-entity/test",)),
    Benchmark("SCD", "SCIDOCS", ("beir/scidocs",)),
    Benchmark("FEV", "FEVER", ("beir/fever/test",)),
    Benchmark("CFE", "Climate-FEVER", ("beir/climate-fever",)),
    Benchmark("SCF", "SciFact", ("beir/scifact/test",)),
)
MS_MARCO = Benchmark("MSM", "MS MARCO", ("beir/msmarco/dev",), split="dev")
TREC_DL = (
    Benchmark("DL19", "TREC-DL 2019", ("msmarco-passage/trec-dl-2019/judged",)),
    Benchmark("DL20", "TREC-DL 2020", ("msmarco-passage/trec-dl-2020/judged",)),
)
