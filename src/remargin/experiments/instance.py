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
from remargin.report.tables import Block, Cell, Table, number
from remargin.training.inspection import Instance, Passage, inspect

FORMAT = "remargin-instance-1"
LONGEST = 240  # characters of a text that are shown


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


def instance_table(found: Instance, title: str, longest: int = LONGEST) -> Table:
    """The instance as the paper's table 2 shows it, with so many characters of each text.

    >>> passage = Passage("query", "q1", "a very long text " * 50)
    >>> table = instance_table(Instance(passage, passage, (), 0.5, 0.1), "q1")
    >>> len(table.blocks[0].rows[0][1].text)
    240
    """
    rows = [
        [Cell(p.role), Cell(_short(p.text, longest)), number(p.relevance), number(p.target), number(p.loss)]
        for p in found.passages
    ]
    notes = [
        f"Over all negatives of the batch, the mean target is {found.mean_target:.3f} and the mean loss "
        f"{found.mean_loss:.3f}. Relevance is the similarity to the query."
    ]
    return Table(title, ["", "text", "relevance", "target", "loss"], [Block("", rows)], notes)


def _short(text: str, longest: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."


def _instance(study: Study, model: str) -> Instance:
    """From the run's folder, or made now, while its model is there."""
    spec = choose(study, model, DISTRIBUTED).spec
    path = study.run(spec).folder / "instance.json"
    if not path.exists():
        encoder = BiEncoder.from_pretrained(study.model(spec))
        found = inspect(encoder, study.training.prepared(model), batch_size=spec.batch_size, seed=spec.seed)
        short = {**asdict(found), "negatives": [asdict(p) for p in found.negatives]}
        write_header(path, {"format": FORMAT, **short})
    header = read_header(path, InstanceHeader, FORMAT, f"delete {spec.key} and go on")
    query, positive = Passage(**header["query"]), Passage(**header["positive"])
    negatives = tuple(Passage(**values) for values in header["negatives"])
    return Instance(query, positive, negatives, header["mean_target"], header["mean_loss"])
