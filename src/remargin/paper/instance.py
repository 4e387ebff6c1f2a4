"""The paper's table 2: one training instance, as the model that was trained with distributed targets sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypedDict

from remargin.files.headers import write_header
from remargin.files.shapes import Check, FieldsOf, Finite, mismatch
from remargin.model.encoder import BiEncoder
from remargin.paper.systems import DISTRIBUTED
from remargin.reports.sections import Section
from remargin.study.experiment import Experiment
from remargin.study.results import Results
from remargin.study.specs import RunSpec
from remargin.study.study import Study
from remargin.study.systems import choose, declare
from remargin.study.tasks import Task
from remargin.training.inspection import Instance, Passage, inspect, instance_table

FILE, FORMAT = "instance.json", "remargin-instance-1"


def _has(*names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda passage: all(mismatch(passage.get(name), Finite) is None for name in names)


Negative = Annotated[
    dict[str, Any], FieldsOf(Passage), Check("a passage with all numbers", _has("relevance", "target", "loss"))
]


class InstanceHeader(TypedDict):
    """An `Instance` on disk."""

    format: str
    query: Annotated[dict[str, Any], FieldsOf(Passage)]
    positive: Annotated[dict[str, Any], FieldsOf(Passage), Check("a passage with a relevance", _has("relevance"))]
    negatives: Annotated[list[Negative], Check("3 passages", lambda negatives: len(negatives) == 3)]
    mean_target: Finite
    mean_loss: Finite


@dataclass(frozen=True)
class Inspect:
    """Inspects the first query of the first batch, as the best model of a run sees it."""

    spec: RunSpec
    settled: bool
    triplets: int = 0

    @property
    def key(self) -> str:
        """The run's, and what is made of it."""
        return f"{self.spec.key}/{FILE}"

    @property
    def model(self) -> str:
        """The run's backbone."""
        return self.spec.model

    def is_done(self, results: Results) -> bool:
        """Whether the instance is there."""
        return results.files.has(results.folder(self.spec.key) / FILE)

    def is_ready(self, results: Results) -> bool:
        """Whether the run is trained."""
        return self.settled and results.has(self.spec)

    def do(self, study: Study) -> None:
        """Inspect the instance, while the run's model is there or by training it again."""
        encoder = BiEncoder.from_pretrained(study.model(self.spec))
        prepared = study.training.prepared(self.spec.model)
        instance = inspect(prepared, encoder, batch_size=self.spec.batch_size, seed=self.spec.seed)
        plain = {**asdict(instance), "negatives": [asdict(passage) for passage in instance.negatives]}
        write_header(study.results.folder(self.spec.key) / FILE, {"format": FORMAT, **plain})


def _tasks(results: Results) -> Iterator[Task]:
    for model in results.models:
        choice = declare(results, model, DISTRIBUTED)
        yield from choice.runs()
        yield Inspect(choice.spec, choice.settled)


def findings(results: Results) -> Mapping[str, Instance]:
    """The first query of the first batch, for each backbone."""
    return results.of_models(lambda model: _instance(results, model))


def draw(results: Results, findings: Mapping[str, Instance]) -> Section:
    """A table for each backbone."""
    tables = [instance_table(instance, f"{model}: query {instance.query.id}") for model, instance in findings.items()]
    summary = [
        "The less a negative resembles the positive, the lower its target: the smaller is the margin that is asked for."
    ]
    return Section("instance", "A training instance", summary, tables, [], {"batch": 0}, [])


def _instance(results: Results, model: str) -> Instance:
    spec = choose(results, model, DISTRIBUTED).spec
    path = results.run(spec).folder / FILE
    if not results.files.has(path):
        raise results.not_trained(f"the instance of {spec.key}", model)
    header = results.files.header(path, InstanceHeader, FORMAT, f"delete {spec.key} and go on")
    query, positive = Passage(**header["query"]), Passage(**header["positive"])
    negatives = tuple(Passage(**values) for values in header["negatives"])
    return Instance(query, positive, negatives, header["mean_target"], header["mean_loss"])


EXPERIMENT = Experiment(
    "instance",
    tasks=_tasks,
    findings=findings,
    draw=draw,
)
