"""The paper's table 2: one training instance, as the model that was trained with distributed targets sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, TypedDict

from remargin.experiments.outcome import Outcome
from remargin.experiments.rows import DISTRIBUTED, choose
from remargin.experiments.study import Study
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Check, FieldsOf, Finite, mismatch
from remargin.model.encoder import BiEncoder
from remargin.report.sections import Section
from remargin.training.inspection import Instance, Passage, inspect, instance_table

FORMAT = "remargin-instance-1"


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


def instance(study: Study) -> Outcome:
    """The first query of the first batch, for each backbone."""
    tables, numbers = [], {}
    for model, found in study.of_models(lambda model: _instance(study, model)).items():
        tables.append(instance_table(found, f"{model}: query {found.query.id}"))
        numbers[model] = {
            p.role: {"relevance": p.relevance, "target": p.target, "loss": p.loss} for p in found.passages
        }
    summary = [
        "The less a negative resembles the positive, the lower its target: the smaller is the margin that is asked for."
    ]
    return Outcome(Section("instance", "A training instance", summary, tables, [], {"batch": 0}, []), numbers)


def _instance(study: Study, model: str) -> Instance:
    """From the run's folder, or made now, while its model is there."""
    spec = choose(study, model, DISTRIBUTED).spec
    path = study.run(spec).folder / "instance.json"
    if not path.exists():
        encoder = BiEncoder.from_pretrained(study.model(spec))
        found = inspect(study.training.prepared(model), encoder, batch_size=spec.batch_size, seed=spec.seed)
        short = {**asdict(found), "negatives": [asdict(p) for p in found.negatives]}
        write_header(path, {"format": FORMAT, **short})
    header = read_header(path, InstanceHeader, FORMAT, f"delete {spec.key} and go on")
    query, positive = Passage(**header["query"]), Passage(**header["positive"])
    negatives = tuple(Passage(**values) for values in header["negatives"])
    return Instance(query, positive, negatives, header["mean_target"], header["mean_loss"])
