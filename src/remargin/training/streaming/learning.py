"""`stream`: from lines that come in to a model that others use meanwhile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from remargin.data.collection import Collection, has_queries, open_source
from remargin.data.splits import normalised
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.evaluation.measures import require_measures
from remargin.files.checksums import sha256
from remargin.losses.inputs import Similarity
from remargin.model.checkpoint import own_random_state
from remargin.model.encoder import BiEncoder
from remargin.model.folder import LONGEST_DEFAULT, local_folder
from remargin.model.names import named_minilm
from remargin.progress import tell
from remargin.retrieval.languages import AUTO
from remargin.retrieval.texts import collection_texts, counted_rejects
from remargin.training.away import Away
from remargin.training.engine import require_precision
from remargin.training.measuring import FEWEST_QUERIES, UNCHOSEN_WEIGHT
from remargin.training.request import loss_for, require_given
from remargin.training.settings import FitSettings
from remargin.training.streaming.accepting import Acceptance
from remargin.training.streaming.batches import Miner, NegativesOf, StreamBatches
from remargin.training.streaming.examples import Example, parse
from remargin.training.streaming.journal import MOST_REJECTS, StreamJournal
from remargin.training.streaming.loop import Streamed, StreamTraining
from remargin.training.streaming.request import (
    FIELDS,
    StreamRequest,
    recorded_stream,
    require_share,
    stream_settings,
)
from remargin.training.streaming.sources import open_source as open_stream
from remargin.training.streaming.window import Window
from remargin.training.training_folder import TrainingFolder
from remargin.training.validation import Validator


def stream(
    stream: str | Path | None = None,
    data: str | Path | None = None,
    model: str | Path | None = None,
    out: str | Path | None = None,
    *,
    negatives: NegativesOf = "bm25",
    shuffle: int = 1,
    blend: str | float = "auto",
    wait: float | None = None,
    most_rejects: float = MOST_REJECTS,
    from_start: bool = False,
    pooling: str = "auto",
    similarity: Similarity | None = None,
    query_length: int | None = None,
    document_length: int | None = None,
    training_length: int | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    validation_split: str | None = None,
    also: str | None = None,
    language: str = AUTO,
    resume: bool | str | Path = False,
    skip_bad: bool = False,
    say: Callable[[str], None] = tell,
    **changes: Any,
) -> Streamed:
    """Train an encoder on lines as they come, and replace a model that is used meanwhile; `remargin fit --stream`.

    Each line is a triplet or a pair as JSON; see `remargin.training.streaming.examples.parse`. It is put into a journal
    on disk before anything else is done with it, and all training reads from there. If killed at any moment,
    `stream(resume=folder)` continues from the last checkpoint: no line is lost, and those that were trained on since
    are said and replayed. From time to time the trained encoder is measured at home, on dev, and away, on other texts;
    a blend of it with the last accepted model takes the place of `out/model` at once, if dev gains by that.

    Its folder:

        config.yaml     what was asked for
        stream.jsonl    the journal: all lines that were taken
        rejects.jsonl   the malformed lines, each with its source, number and problem
        trained.jsonl   the lines of each step, and which of them were replayed
        metrics.csv     loss, margins, speed, validations
        checkpoint/     what `resume` needs: weights, optimiser, the place in the journal, the examples that wait
        model/          the model to use: the last that was accepted

    Args:
        stream: "-" for standard input; a file that grows; or a folder, whose .jsonl files are taken in the order of
            their names, and further ones as they come.
        data: the collection from whose documents negatives for pairs are mined, and on whose dev split models are
            measured. Without it, lines must be triplets, and each validation accepts a blend.
        model: the encoder to start from.
        out: the folder of the training run.
        negatives: what ranks the documents from which negatives are drawn: bm25, or model, the last accepted one, which
            encodes the collection anew whenever a model is accepted.
        shuffle: the size of the shuffle buffer; 1 keeps the order in which lines come.
        blend: the weight of the trained model in each accepted one: auto chooses on dev among 0, 0.5 and 1; it is 0.5
            if there is no dev split, or a small one.
        wait: end after so many seconds without a new line. Without it, a file or a folder is watched for ever; standard
            input ends by itself.
        most_rejects: the share of malformed lines at which to stop. The first ten are free, unless it is 0.
        from_start: when resuming, standard input begins again with its first line, and the lines that were taken are
            compared and left out; without it, it goes on after them.
        pooling: how token vectors become one vector; see `BiEncoder`.
        similarity: what the vectors are made for, cosine or dot. Without it, the model's own, or cosine.
        query_length, document_length: maximum lengths in tokens.
        training_length: maximum document length in tokens while training; 512 at most if not given.
        query_prefix, document_prefix: put before every text.
        validation_split: the split to measure on. Without it, dev, if the collection has one.
        also: the collection on which to measure what the encoder forgets; see `Away.choose`.
        language: of the texts, for BM25; see `BM25`.
        resume: the folder of an interrupted training run; what was asked for then need not be given. True continues the
            one in `out`.
        skip_bad: set bad input in the collection aside.
        say: called with progress messages.
        **changes: single settings by their names in `FitSettings` and `LossSettings`: batch_size, save_every, ...

    Raises:
        InputError: for bad input, for settings that have no effect on a stream, and if too many lines are malformed.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = [f'{{"query": "how is {word}", "positive": "the {word}", "negative": "a value"}}' for word in "abcd"]
        >>> _ = (folder / "new.jsonl").write_text("\\n".join(rows))
        >>> done = stream(folder / "new.jsonl", None, model_folder, folder / "run", wait=0, also="docstrings:json",
        ...               batch_size=2, say=lambda line: None)
        >>> done.steps, done.examples, done.waiting, done.model.name
        (2, 4, 0, 'model')
    """
    given = {name: value for name, value in locals().items() if value != PARAMETERS.get(name) and name not in OF_NOW}
    given |= changes
    require_share(most_rejects, wait)
    if resume is True and stream is None and model is None:
        resume = require_given(out=out)
    if not isinstance(resume, bool):
        asked, settings = recorded_stream(Path(resume), given)
    else:
        require_given(stream=stream, model=model, out=out)
        options: dict[str, Any] = {name: value for name, value in given.items() if name in FIELDS}
        options |= {name: str(options[name]) for name in ("stream", "data", "model", "blend") if name in options}
        asked = StreamRequest(**{"data": None, **options, "out": Path(str(out))})
        settings = loss_for(asked.model, stream_settings(changes), "target" in changes, say, asked.similarity)
    return _stream(asked, settings, wait, most_rejects, from_start, bool(resume), say)


PARAMETERS = {name: parameter.default for name, parameter in inspect.signature(stream).parameters.items()}
OF_NOW = ("wait", "most_rejects", "from_start", "resume", "say", "changes")  # need not stay the same


@own_random_state()
def _stream(
    asked: StreamRequest,
    settings: FitSettings,
    wait: float | None,
    most_rejects: float,
    from_start: bool,
    resume: bool,
    say: Callable[[str], None],
) -> Streamed:
    """Do what `stream` is asked for."""
    require_precision(settings.precision)
    require_measures([settings.validation_measure])
    folder = TrainingFolder(asked.out, {**asked.plain(), "settings": asdict(settings)}, resume)
    load = partial(_load, asked, settings)
    learner = load()
    loss = settings.loss.build(learner.similarity, learner.dimension)
    learner.trained_dims = getattr(loss, "dims", ())
    home = _Home.of(asked, settings, learner, say)
    away = Away.choose(asked.data or "", asked.also, by=settings.validation_measure, skip_bad=asked.skip_bad)
    with folder.opened():
        folder.add_hashes(_hashes(asked.model))
        journal = StreamJournal(asked.out, partial(_read, home.documents), most_rejects)
        window = Window(journal, asked.shuffle, settings.seed)
        miner = None
        if home.documents is not None:
            miner = Miner(home.documents, home.relevant, asked.negatives, settings.seed, asked.language)
        longest = asked.training_length or asked.document_length or LONGEST_DEFAULT
        batches = StreamBatches(learner, miner, settings.per_triplet, longest)
        acceptance = Acceptance(load, home.dev, away, home.weight)
        training = StreamTraining(learner, loss, settings, journal, window, batches, acceptance, asked.out, say)
        source = open_stream(asked.stream, journal.positions, journal.sums, say, from_start)
        return training.run(source, wait)


def _load(asked: StreamRequest, settings: FitSettings) -> BiEncoder:
    """The encoder to start from."""
    precision = settings.precision if settings.precision in ("32", "bf16") else "auto"
    own: dict[str, Any] = {
        name: getattr(asked, name)
        for name in ("pooling", "similarity", "query_length", "document_length", "query_prefix", "document_prefix")
    }
    return BiEncoder.from_pretrained(asked.model, **own, seed=settings.seed, precision=precision)


def _read(documents: dict[str, str] | None, line: str) -> Example | None:
    example = parse(line, documents)
    if example is not None and not example.negatives and documents is None:
        raise InputError("a pair, and no collection to mine negatives from", do="give --data")
    return example


@dataclass
class _Home:
    """The collection: texts to mine negatives from, what is relevant by normalised query, and dev to measure on.

    Attributes:
        weight: of the trained model in each accepted one; None if dev chooses it.
    """

    documents: dict[str, str] | None
    relevant: dict[str, set[str]]
    dev: Validator | None
    weight: float | None

    @classmethod
    def of(cls, asked: StreamRequest, settings: FitSettings, model: BiEncoder, say: Callable[[str], None]) -> _Home:
        fixed = UNCHOSEN_WEIGHT if asked.weight is None else asked.weight
        if asked.data is None:
            return cls(None, {}, None, fixed)
        source = open_source(asked.data, Rejects(skip=asked.skip_bad))
        judged = [split for split in ("train", "dev") if has_queries(source, split)]
        split = asked.validation_split or "dev"
        if asked.validation_split is not None and split not in source.splits():
            problem = f"no split {split!r}; it has: {', '.join(source.splits()) or 'none'}"
            raise InputError(problem, file=asked.data, do="choose one of those")
        if "train" in judged:
            collection = Collection.load(asked.data, "train", asked.skip_bad)
            collection.rejects.warn()
            documents, relevant = collection.documents, _relevant(collection)
        else:
            with counted_rejects(asked.skip_bad) as rejects:
                documents = {text.id: text.text for text in collection_texts(asked.data, rejects=rejects)}
            relevant = {}
        if split == "dev" and "dev" not in judged:
            say("no dev split: each validation accepts a blend, without measuring it")
            return cls(documents, relevant, None, fixed)
        dev = Collection.load(asked.data, split, asked.skip_bad)
        home = Validator.of(dev, model, settings, language=asked.language)
        few = len(home.queries) < FEWEST_QUERIES
        if few and asked.weight is None:
            say(f"{len(home.queries)} {split} queries are too few to choose by: each validation accepts a blend")
        return cls(documents, relevant, home, fixed if few else asked.weight)


def _relevant(collection: Collection) -> dict[str, set[str]]:
    relevant: dict[str, set[str]] = {}
    for query, judged in collection.qrels.items():
        known = relevant.setdefault(normalised(collection.queries[query]), set())
        known |= {document for document, grade in judged.items() if grade > 0}
    return relevant


def _hashes(model: str) -> dict[str, str]:
    """The hashes of the weights to start from, if they are in a folder."""
    if not (named_minilm(model) or Path(model).is_dir()):
        return {}
    return {f"model/{path.name}": sha256(path) for path in sorted(local_folder(model).glob("*.safetensors"))}
