"""The model card of an exported model: README.md with front matter, written from the files of its training run.

Nothing is made up: what the files do not say is left out. Of a path on this machine only the last part is told, and no
text of the collection.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from remargin.errors import printable
from remargin.model.folder import verify_model
from remargin.model.names import ON_THE_HUB
from remargin.model.parts import OURS
from remargin.reports.blend_file import BlendPath, path_words, read_path
from remargin.reports.run_files import RunConfig, RunReport, elsewhere_words, peak_rate, read_config, read_report
from remargin.reports.training_run import is_run

if TYPE_CHECKING:
    from remargin.integrations.int8 import Int8
    from remargin.model.encoder import BiEncoder

FILE = "README.md"
ROWS = {"bm25": "BM25", "before": "before training", "after": "this model", "hybrid": "this model, fused with BM25"}
PUBLIC = ("irds", "hf", "hub", "datasets")  # collections that have the same name for everyone
GENERIC = ("model", "best", "last")  # folders of a training run, whose own name says more
SETTINGS = ("batch_size", "accumulate", "per_triplet", "learning_rate", "sampler", "seed")
CITATION = """@inproceedings{gienapp2025adaptive,
  title     = {Learning Effective Representations for Retrieval Using Self-Distillation with Adaptive Relevance
               Margins},
  author    = {Gienapp, Lukas and Deckers, Niklas and Potthast, Martin and Scells, Harrisen},
  booktitle = {Proceedings of the 2025 International ACM SIGIR Conference on Innovative Concepts and Theories in
               Information Retrieval (ICTIR)},
  year      = {2025},
  doi       = {10.1145/3731120.3744594}
}"""


class TrainingRun(NamedTuple):
    """What the folder of a training run says of the model in it."""

    config: RunConfig
    report: RunReport
    path: BlendPath | None


def training_run(model: str | Path) -> TrainingRun | None:
    """The training run that a model folder is the outcome of; None if there is none beside the folder.

    Raises:
        InputError: if files of the training run are damaged, or the model was changed since.

    Example:
        >>> training_run(model_folder)
    """
    folder = Path(model).resolve()
    run = folder.parent
    if not (folder / OURS).is_file() or not is_run(run):
        return None
    report = read_report(run)
    if report is None or report["model"] != folder.name:
        return None
    verify_model(folder, "export the model as `fit` wrote it")  # else the figures would be another model's
    return TrainingRun(read_config(run), report, read_path(run))


def shareable(name: str) -> str:
    """What a collection or a model is called, without the folders of this machine that it lies in.

    >>> shareable("pairs:/home/me/faq.csv?query=q&document=a"), shareable("docstrings:json,./secret/code")
    ('pairs:faq.csv', 'docstrings:json,code')
    >>> shareable("irds:beir/scifact/test"), shareable("runs/faq/model"), shareable("paragraphs of a book")
    ('irds:beir/scifact/test', 'faq', 'paragraphs of a book')
    """
    kind, colon, rest = name.partition(":")
    if colon and kind in PUBLIC:
        return name
    if not colon or "/" in kind:
        kind, colon, rest = "", "", name
    parts = rest.partition("?")[0].split(",") if kind == "docstrings" else [rest.partition("?")[0]]
    return kind + colon + ",".join(_last_part(part) for part in parts)


def _last_part(path: str) -> str:
    cached = re.search(r"models--([^/]+)--([^/]+)/snapshots/", path)  # where the hub's models are kept
    if cached:
        return f"{cached[1]}/{cached[2]}"
    pure = PurePath(path)
    return (pure.parent.name if pure.name in GENERIC else "") or pure.name or "a folder"


def model_card(
    model: BiEncoder, name: str, run: TrainingRun | None = None, onnx: bool = False, int8: Int8 | None = None
) -> str:
    """The text of the card.

    Args:
        model: the encoder.
        name: what to load it by: its name on the hub, or its folder.
        run: the training run that made it, if it is known.
        onnx: whether an ONNX file is beside it.
        int8: what is known of the int8 file, if there is one.

    Example:
        >>> from remargin import BiEncoder
        >>> card = model_card(BiEncoder.from_pretrained(model_folder), "me/faq")
        >>> card.splitlines()[:3], "## Training" in card
        (['---', 'library_name: sentence-transformers', 'pipeline_tag: sentence-similarity'], False)
    """
    front = yaml.safe_dump(_front_matter(name, run), sort_keys=False, allow_unicode=True, width=1000)
    parts = [f"---\n{printable(front)}---", f"# {_plain(name)}", _summary(model, run), _use(model, name, onnx)]
    if run is not None:
        parts += [_training(run, model), _results(run)]
    if int8 is not None:
        parts.append("\n".join(["## int8", "", *(f"- {_plain(line)}" for line in int8.lines())]))
    parts.append(_limits(model, run))
    if run is not None:
        parts += [f"## Citation\n\n```bibtex\n{CITATION}\n```", _versions(run.config)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(name: str, run: TrainingRun | None) -> dict[str, Any]:
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "dense-retrieval"]
    front: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": [*tags, *(["remargin"] if run is not None else [])],
    }
    if run is None:
        return front
    if hub := _hub_name(run.config):
        front["base_model"] = hub
    outcome = run.report.get("outcome")
    if outcome is not None:
        measures = outcome["systems"]["after"]
        front["metrics"] = list(measures)
        dataset = {"name": f"{shareable(_asked(run, 'data'))}, {outcome['split']} split", "type": "unknown"}
        result = {
            "task": {"type": "information-retrieval", "name": "Information Retrieval"},
            "dataset": dataset,
            "metrics": [
                {"type": measure, "name": measure, "value": round(mean["mean"], 4)}
                for measure, mean in measures.items()
            ],
        }
        front["model-index"] = [{"name": name, "results": [result]}]
    return front


def _hub_name(config: RunConfig) -> str | None:
    """The name on the hub of the encoder that training started from; None if it was a folder."""
    given = str(config["asked"].get("model", ""))
    if given in ON_THE_HUB:
        return ON_THE_HUB[given]
    cached = _last_part(given) if "models--" in given else ""
    if not cached and any(name.startswith("model/") for name in config.get("sha256", {})):
        return None  # `fit` hashes the weights of a folder
    hub = cached or given
    return hub if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", hub) else None


def _asked(run: TrainingRun, name: str) -> str:
    return str(run.config["asked"].get(name, ""))


def _summary(model: BiEncoder, run: TrainingRun | None) -> str:
    kind = getattr(model.backbone.config, "model_type", "encoder")
    head = f"A dense retriever (bi-encoder): queries and documents become vectors of {model.dimension} numbers, whose "
    head += f"{'cosine' if model.similarity == 'cosine' else 'dot product'} says how relevant a document is. "
    head += f"Architecture: {kind}, pooling {model.pooling}."
    if run is None:
        return head
    start = _hub_name(run.config) or shareable(_asked(run, "model"))
    made = f"Fine-tuned from {_code(start)} on {_code(shareable(_asked(run, 'data')))} with remargin."
    if run.report.get("weight") == 0:
        made += " Training did not help on dev: these are the starting weights, unchanged."
    return f"{head} {made}"


def _use(model: BiEncoder, name: str, onnx: bool) -> str:
    quoted = json.dumps(printable(name), ensure_ascii=False)
    lines = [
        "## Use",
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        f"model = SentenceTransformer({quoted})",
        'queries = model.encode_query(["a query"])',
        'documents = model.encode_document(["a document", "another"])',
        "print(model.similarity(queries, documents))",
        "```",
        "",
        "With remargin:",
        "",
        "```python",
        "from remargin import BiEncoder",
        "",
        f"model = BiEncoder.from_pretrained({quoted})",
        'print(model.encode_queries(["a query"]) @ model.encode_documents(["a document", "another"]).T)',
        "```",
    ]
    if onnx:
        lines += [
            "",
            "`model.onnx` has pooling and normalisation inside: `input_ids` and `attention_mask`, (batch, sequence), "
            "give `embeddings`, (batch, dimension).",
        ]
    lines += ["", f"- Queries: at most {model.query_length} tokens, {_prompt(model.query_prefix)}."]
    lines += [f"- Documents: at most {model.document_length} tokens, {_prompt(model.document_prefix)}."]
    return "\n".join(lines)


def _prompt(prefix: str) -> str:
    return f"after the prompt {_code(json.dumps(prefix, ensure_ascii=False))}" if prefix else "without a prompt"


def _training(run: TrainingRun, model: BiEncoder) -> str:
    asked, report = run.config["asked"], run.report
    settings = _dict(asked, "settings") | peak_rate(report)
    loss = _dict(settings, "loss")
    seen = report.get("data", {})
    lines = ["## Training", "", f"- Data: {_code(shareable(str(asked.get('data', ''))))}{_counts(seen)}."]
    lines += [f"- Loss: {_code(_loss(loss, model))}."] if loss else []
    lines.append(f"- {report['steps']:,} steps, {report['triplets']:,} triplets{_of_settings(settings)}.")
    if run.path is not None:
        lines.append(f"- {_plain(path_words(replace(run.path, away=None)))}")
    elif "weight" in report:
        lines.append(f"- Weight of the trained weights in the model: {report['weight']:g}.")
    fusion = report.get("fusion")
    if fusion is not None and isinstance(fusion.get("weight"), int | float):
        lines.append(f"- Weight of this model in a fusion with BM25, chosen on dev: {fusion['weight']:g}.")
    return "\n".join(lines)


def _loss(settings: dict[str, Any], model: BiEncoder) -> str:
    """The loss with the settings that it uses; with all that were given, if this version does not know them."""
    from remargin.training.settings import LossSettings

    try:
        return repr(LossSettings(**settings).build(model.similarity, model.dimension))
    except (TypeError, ValueError):
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _dict(values: dict[str, Any], name: str) -> dict[str, Any]:
    inside = values.get(name)
    return inside if isinstance(inside, dict) else {}


def _counts(seen: dict[str, Any]) -> str:
    """How many pairs, queries and documents there were, and queries of other splits; of what is known."""
    names = {"pairs": "training pairs", "queries": "training queries", "documents": "documents"}
    counts = [f"{seen[name]:,} {words}" for name, words in names.items() if isinstance(seen.get(name), int)]
    for split, held_out in _dict(seen, "shared").items():
        if isinstance(held_out, dict) and isinstance(held_out.get("queries"), int):
            counts.append(f"{held_out['queries']:,} {_plain(str(split))} queries")
    return f" ({', '.join(counts)})" if counts else ""


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_code(str(value))}" for name, value in values.items() if value is not None)


def _of_settings(settings: dict[str, Any]) -> str:
    chosen = {name: settings[name] for name in SETTINGS if settings.get(name) is not None}
    return f" ({_listed(chosen)})" if chosen else ""


def _results(run: TrainingRun) -> str:
    outcome, away = run.report.get("outcome"), run.report.get("away")
    if outcome is None and away is None:
        return ""
    lines = ["## Results", ""]
    if outcome is not None:
        systems = outcome["systems"]
        measures = list(systems["after"])
        head = f"{outcome['queries']:,} {outcome['split']} queries, {outcome['ranked']}, means with 95% intervals:"
        lines += [_plain(head), "", f"| | {' | '.join(measures)} |", "|---" * (len(measures) + 1) + "|"]
        for system, label in (*ROWS.items(), ("gain", "gain of training, paired")):
            if system in systems:
                cells = (systems[system][measure] for measure in measures)
                row = " | ".join(f"{c['mean']:.3f} ({c['low']:.3f} to {c['high']:.3f})" for c in cells)
                lines.append(f"| {label} | {row} |")
        if outcome["split"] != "test":
            lines += ["", f"There is no test split: {_plain(outcome['split'])} also made choices, and flatters them."]
        lines.append("")
    if away is not None:
        told = elsewhere_words({**away, "what": shareable(away["what"])})
        where = "Elsewhere, on texts that training had nothing to do with"
        lines.append(f"{_plain(told.replace('elsewhere', where, 1))}.")
    return "\n".join(lines).rstrip()


def _limits(model: BiEncoder, run: TrainingRun | None) -> str:
    lines = ["## Intended use and limits", ""]
    if run is None:
        lines.append("- It ranks documents for a query. Nothing is known here of its training or its effectiveness.")
    else:
        lines.append("- It ranks documents like those that it was trained on, for queries like those.")
        lines.append("- Measured is what the tables show, and nothing else: measure it on your own queries first.")
    longer = (
        f"- Text beyond {model.document_length} tokens of a document, or {model.query_length} of a query, is not read"
    )
    seen: dict[str, Any] = {} if run is None else run.report.get("data", {})
    cut, documents = seen.get("documents_truncated"), seen.get("documents")
    same = seen.get("document_length") == model.document_length
    if same and isinstance(cut, int) and isinstance(documents, int) and documents:
        longer += f"; {cut / documents:.1%} of the documents that it was trained on are longer"
    return "\n".join([*lines, f"{longer}."])


def _versions(config: RunConfig) -> str:
    known = [f"{name} {version}" for name, version in config["versions"].items() if version is not None]
    return f"## Versions\n\n{_plain(', '.join(known))}" if known else ""


def _plain(text: str) -> str:
    """Text without line breaks or control characters, in which Markdown and HTML see no markup.

    >>> print(_plain("a *red* <b>line</b>\\n\\x1b[31m"))
    a \\*red\\* \\<b>line\\</b> \\\\x1b\\[31m
    """
    return re.sub(r"([\\`*_\[<|#])", r"\\\1", printable(" ".join(text.splitlines())))


def _code(text: str) -> str:
    """Text as code, whatever is in it."""
    inside = printable(" ".join(text.splitlines()))
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", inside)), default=0))
    return f"{fence}{inside}{fence}" if len(fence) == 1 else f"{fence} {inside} {fence}"
