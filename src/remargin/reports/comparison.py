"""A comparison of runs as tables: the means with the paper's marks, and every number behind them."""

from __future__ import annotations

from collections.abc import Iterable

from remargin.evaluation.comparison import BEST, POWER, ComparedRun, CompareSettings, Comparison, PValue
from remargin.evaluation.significance import Interval
from remargin.reports.tables import MISSING, Block, Cell, Table, csv_text, number

DAGGER = "†"
TESTS = {"tost": "TOST", "non_inferiority": "NI", "t": "t", "fisher": "Fisher"}
COUNTS = ("wins", "ties", "losses")
VERDICTS = ("equivalent", "non_inferior", "different")


def comparison_table(comparison: Comparison, title: str = "") -> Table:
    """A row for each run and a column for each measure: the best mean bold, those equivalent to the reference marked.

    >>> from remargin.evaluation.comparison import compare_scores
    >>> scores = {"a": {"RR": {"q1": 1.0, "q2": 0.5}}, "b": {"RR": {"q1": 0.99, "q2": 0.5}}}
    >>> table = comparison_table(compare_scores(scores, bound=0.1))
    >>> for line in table.markdown().splitlines()[:4]:
    ...     print(line)
    | run | RR |
    | --- | ---: |
    | a | **0.750** |
    | b | 0.745† |
    """
    rows = []
    for run in comparison.runs:
        compared = [comparison.row(measure, run) for measure in comparison.measures]
        cells = [number(row.mean.mean, bold=row.is_best, marks=DAGGER if row.equivalent else "") for row in compared]
        rows.append([Cell(run), *cells])
    notes = [_method(comparison), _detectable(comparison), *_missing(comparison)]
    return Table(title, ["run", *comparison.measures], [Block("", rows)], notes)


def details_table(comparison: Comparison, title: str = "") -> Table:
    """A block for each measure with all that was computed: intervals, corrected p values, wins, ties and losses.

    >>> from remargin.evaluation.comparison import compare_scores
    >>> scores = {"a": {"RR": {"q1": 1.0, "q2": 0.5}}, "b": {"RR": {"q1": 0.99, "q2": 0.5}}}
    >>> table = details_table(compare_scores(scores))
    >>> dict(zip(table.header, (cell.text for cell in table.blocks[0].rows[1])))["W/T/L"]
    '0/1/1'
    """
    settings = comparison.settings
    header = ["run", "mean", "difference", *(f"p {name}" for name in TESTS.values()), "W/T/L", "detectable"]
    blocks = [
        Block(measure, [_details(row, settings) for row in comparison.rows if row.measure == measure])
        for measure in comparison.measures
    ]
    notes = [
        f"Difference: to the reference. ±: {100 * (1 - settings.alpha):g}% confidence, by Student's t, not corrected. "
        f"p: {_correction(comparison)}; bold below {settings.alpha:g}. NI: non-inferiority. "
        f"W/T/L: {comparison.unit} won, tied, lost. Detectable: the smallest difference that a paired t-test at this "
        f"level shows with power {POWER:g}."
    ]
    return Table(title, header, blocks, notes)


def comparison_csv(comparison: Comparison) -> str:
    """A line for each measure and run with every number at full precision, and what the tests were done with.

    >>> from remargin.evaluation.comparison import compare_scores
    >>> scores = {"a": {"RR": {"q1": 1.0, "q2": 0.5}}, "b": {"RR": {"q1": 0.99, "q2": 0.5}}}
    >>> lines = comparison_csv(compare_scores(scores)).splitlines()
    >>> lines[0][:44], lines[1][:21]
    ('measure,run,reference,queries,missing,is_bes', 'RR,a,a,2,0,True,0.75,')
    """
    lines = [_line(row, comparison.settings) for row in comparison.rows]
    return csv_text(list(lines[0]), [list(line.values()) for line in lines])


def _line(row: ComparedRun, settings: CompareSettings) -> dict[str, object]:
    line: dict[str, object] = {
        name: getattr(row, name) for name in ("measure", "run", "reference", "queries", "missing", "is_best")
    }
    line |= _interval("mean", row.mean) | _interval("difference", row.difference.mean if row.difference else None)
    for test in TESTS:
        p: PValue | None = getattr(row.difference, test, None)
        line |= {f"p_{test}": p and p.plain, f"p_{test}_bonferroni": p and p.bonferroni, f"p_{test}_holm": p and p.holm}
    line |= {name: getattr(row.difference, name, None) for name in (*COUNTS, "detectable", *VERDICTS)}
    return line | {name: getattr(settings, name) for name in ("bound", "alpha", "correction", "samples", "seed")}


def _interval(name: str, interval: Interval | None) -> dict[str, object]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), interval or (None,) * 3, strict=True))


def _details(row: ComparedRun, settings: CompareSettings) -> list[Cell]:
    own = [Cell(row.run), _plus_minus(row.mean, bold=row.is_best)]
    difference = row.difference
    if difference is None:
        return [*own, Cell("reference"), *[MISSING] * (len(TESTS) + 2)]
    p_values = [getattr(difference, test).corrected(settings.correction) for test in TESTS]
    return [
        *own,
        _plus_minus(difference.mean),
        *(_p(p, settings.alpha) for p in p_values),
        Cell("/".join(str(getattr(difference, name)) for name in COUNTS)),
        number(difference.detectable),
    ]


def _plus_minus(interval: Interval, bold: bool = False) -> Cell:
    text = f"{interval.mean:z.3f} ± {interval.high - interval.mean:.3f}"
    return Cell(text, bold, value=interval.mean)


def _p(p: float, alpha: float) -> Cell:
    return Cell(f"{p:.3f}" if p >= 0.0005 else "<0.001", bold=p < alpha, value=p)


def _method(comparison: Comparison) -> str:
    settings = comparison.settings
    counts = _range(row.queries for row in comparison.rows)
    reference = "the best run" if settings.reference == BEST else settings.reference
    how = f"paired TOST, bound {settings.bound:g}, p < {settings.alpha:g}, n = {counts} {comparison.unit}"
    return f"Bold: highest mean. {DAGGER}: equivalent to {reference} ({how}, {_correction(comparison)})."


def _detectable(comparison: Comparison) -> str:
    """The smallest differences that these queries can show, so that 'no difference found' is not read as 'equal'."""
    smallest = []
    for measure in comparison.measures:
        differences = [row.difference for row in comparison.rows if row.measure == measure and row.difference]
        smallest.append(f"{_range(round(d.detectable, 3) for d in differences)} ({measure})")
    shown = f"that a paired t-test shows with power {POWER:g} at this level"
    return f"Smallest difference to the reference {shown}: {', '.join(smallest)}."


def _missing(comparison: Comparison) -> list[str]:
    missing = {row.run: row.missing for row in comparison.rows if row.missing}
    return [f"{run} lacks {count:,} of the {comparison.unit}, counted as 0." for run, count in missing.items()]


def _correction(comparison: Comparison) -> str:
    if comparison.settings.correction == "none":
        return "not corrected"
    count = len(comparison.runs) - 1
    comparisons = f"{count} comparison{'s' if count > 1 else ''}"
    return f"{comparison.settings.correction.capitalize()} over {comparisons} per measure"


def _range(values: Iterable[float]) -> str:
    ordered = [f"{value:,}" for value in sorted(set(values))]
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
