"""What rose and what fell: against the differences in reciprocal rank, and as people see it."""

from __future__ import annotations

from remargin import Run, evaluate
from remargin.reports.moves import Move, move_lines, move_tables, moves, summed_up

QRELS = {"q1": {"a": 1}, "q2": {"a": 2, "b": 1}, "q3": {"c": 1}, "q4": {"a": 1, "b": 0}, "q5": {"b": 1}}
BEFORE = Run.of(
    {
        "q1": {"b": 0.9, "a": 0.1},
        "q2": {"a": 0.9, "c": 0.3},
        "q3": {"a": 0.5, "b": 0.4},
        "q4": {"a": 0.9, "b": 0.8},
        "q5": {"b": 0.9, "a": 0.1},
    }
)
AFTER = Run.of(
    {
        "q1": {"a": 0.9, "b": 0.1},
        "q2": {"c": 0.9, "b": 0.3, "a": 0.2},
        "q3": {"a": 0.5, "b": 0.4, "c": 0.3},
        "q4": {"a": 0.7, "b": 0.3},
        "q5": {"a": 0.9},
    }
)
TEXTS = {"a": "first", "b": "second " * 100, "c": "third"}
QUERIES = {query: f"the text of {query}" for query in QRELS}


def test_gains_are_differences_in_reciprocal_rank() -> None:
    changed = moves(BEFORE, AFTER, QRELS, TEXTS, QUERIES)
    before, after = (evaluate(run, QRELS, ["RR"]).per_query["RR"] for run in (BEFORE, AFTER))
    expected = {query: after[query] - before[query] for query in QRELS if after[query] != before[query]}
    assert {move.query: move.gain for move in changed} == expected
    assert [move.gain for move in changed] == sorted(expected.values(), reverse=True)
    ranks = {move.query: (move.document, move.before, move.after) for move in changed}
    assert ranks == {"q1": ("a", 2, 1), "q2": ("b", 1, 2), "q3": ("c", None, 3), "q5": ("b", 1, None)}
    assert changed[-1].document_text.endswith(" …")


def test_what_moved_most_is_kept_and_everything_is_counted() -> None:
    changed = moves(BEFORE, AFTER, QRELS, TEXTS, QUERIES)
    kept = summed_up(changed, rose=1, fell=1)
    assert (kept["rose"], kept["fell"]) == (2, 2)
    assert [move["query"] for move in kept["most"]] == ["q1", "q5"]  # type: ignore[index]
    assert list(move_lines(kept)) == [
        "2 queries rose, by the rank of the first relevant document:",
        "  'the text of q1' -> a: 2 -> 1",
        "2 queries fell, by the rank of the first relevant document:",
        "  'the text of q5' -> b: 1 -> not found",
    ]
    [table] = move_tables(kept)
    assert [block.label for block in table.blocks] == ["2 queries rose", "2 queries fell"]
    assert [cell.text for cell in table.blocks[0].rows[0]] == ["the text of q1", "a: first", "2", "1"]


def test_nothing_is_shown_where_nothing_moved() -> None:
    kept = summed_up(moves(BEFORE, BEFORE, QRELS, TEXTS, QUERIES))
    assert (list(move_lines(kept)), move_tables(kept)) == ([], [])


def test_a_long_query_is_cut_on_its_line() -> None:
    line = Move("q", "word " * 40, "d", "", 1, 2).line()
    assert "…" in line
    assert len(line) < 100
