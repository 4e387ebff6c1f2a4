"""A first-stage run that is given to a study, to be re-ranked where its models are validated."""

from __future__ import annotations

import json
from pathlib import Path

from remargin.data.collection import open_source
from remargin.data.irds import irds_name, scored_documents
from remargin.data.tables import Rejects
from remargin.errors import InputError
from remargin.evaluation.runs import Run
from remargin.files.hashes import texts_fingerprint


def load_first_stage(given: Path) -> Run:
    """The run in a TREC run file, or that of a data set of ir_datasets, such as the official ones of TREC-DL.

    Args:
        given: a file, or irds:NAME.

    Raises:
        InputError: for a file that is no run, and a data set without one.
    """
    name = irds_name(given)
    if name is None:
        return Run.load(given)
    rankings: dict[str, dict[str, float]] = {}
    for query, document, score in scored_documents(name):
        rankings.setdefault(query, {})[document] = score
    return Run(rankings)


def first_stage_hash(given: Path, data: str, split: str) -> str:
    """A hash of what a run ranks for the judged queries of a split. It reads the ids of all documents.

    Raises:
        InputError: for a run that lacks one of these queries, or has a document that the collection lacks.
    """
    run, source = load_first_stage(given), open_source(data, Rejects())
    judged = dict.fromkeys(query for query, *_ in source.judgments(split))
    if lacking := [query for query in judged if query not in run.rankings]:
        problem = f"lacks {len(lacking):,} of {len(judged):,} queries of split {split!r}"
        raise InputError(problem, file=given, id=lacking[0], do="give a run of that split (--validation-split)")
    rankings = {query: run.rankings[query] for query in judged}
    unknown = dict.fromkeys(document for ranking in rankings.values() for document in ranking)
    for document in source.documents():
        unknown.pop(document.id, None)
    if unknown:
        do = "check that run and collection belong together"
        raise InputError("is not a document of the collection", file=given, id=next(iter(unknown)), do=do)
    return texts_fingerprint({query: json.dumps(ranking) for query, ranking in rankings.items()})
