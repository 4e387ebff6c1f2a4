"""Tables in four formats, with names that try to break them."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remargin.data.tables import cell_text
from remargin.evaluation.comparison import Comparison, compare_scores
from remargin.reports.comparison import comparison_csv, comparison_table, details_table
from remargin.reports.tables import MISSING, Block, Cell, Table, csv_text, escape_latex, escape_markdown, number

HOSTILE = r"a_b%c&d#e\f~g^h{i}j$k|l<m>n*o`p[q](r)"


def zero_shot() -> Table:
    blocks = [
        Block("published", [[Cell("BM25"), Cell("-"), number(0.6647), MISSING]]),
        Block("measured", [[Cell(HOSTILE), Cell("cls"), number(1 / 3, bold=True, marks="†"), number(-0.25)]]),
    ]
    return Table("Zero-shot & more", ["system", "pooling", "sci_fact", "fiqa"], blocks, ["† 95% sure", "second"])


def unescape_latex(text: str) -> str:
    """What LaTeX would print: our commands back to their characters. Anything else that is special is an error."""
    names = {
        "textbackslash": "\\",
        "textasciitilde": "~",
        "textasciicircum": "^",
        "textless": "<",
        "textgreater": ">",
        "textbar": "|",
    }
    out, rest = "", text
    while rest:
        if found := re.match(r"\\([{}$&#%_])", rest):
            out += found[1]
        elif found := re.match(r"\\(\w+)\{\}", rest):
            out += names[found[1]]
        else:
            found = re.match(r"[^\\{}$&#%_~^<>|]", rest)
            assert found, rest
            out += found[0]
        rest = rest[found.end() :]
    return out


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"])))
def test_latex_prints_any_text_as_it_is(text: str) -> None:
    assert unescape_latex(escape_latex(text)) == " ".join(text.split())


def test_latex_of_hostile_names() -> None:
    latex = zero_shot().latex()
    assert r"a\_b\%c\&d\#e\textbackslash{}f\textasciitilde{}g\textasciicircum{}h\{i\}j\$k\textbar{}l" in latex
    assert r"\caption{Zero-shot \& more}" in latex
    assert r"system & pooling & sci\_fact & fiqa \\" in latex
    assert r"\begin{tabular}{llrr}" in latex
    assert r"\multicolumn{4}{l}{\emph{published}} \\" in latex
    assert r"BM25 & - & 0.665 & -- \\" in latex
    assert r"\textbf{0.333}\textsuperscript{$\dagger$} & $-$0.250 \\" in latex
    assert r"{\footnotesize $\dagger$ 95\% sure\par}" in latex
    assert (latex.count(r"\midrule"), latex.count(r"\toprule"), latex.count(r"\bottomrule")) == (2, 1, 1)
    for row in re.findall(r"^.*\\\\$", latex, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)&", row)) == (0 if "multicolumn" in row else 3), row


def test_latex_rows_that_look_like_an_argument_of_the_row_before() -> None:
    latex = Table("", ["run"], [Block("", [[Cell("[2pt]")], [Cell("*")]])]).latex()
    assert "\n{}[2pt] \\\\\n{}* \\\\\n" in latex
    assert "caption" not in latex


def test_markdown_of_hostile_names() -> None:
    lines = zero_shot().markdown().splitlines()
    assert lines[0] == "**Zero-shot &amp; more**"
    assert lines[2:5] == [
        r"| system | pooling | sci\_fact | fiqa |",
        "| --- | --- | ---: | ---: |",
        "| *published* |  |  |  |",
    ]
    row = lines[7]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert r"\_b%c&amp;d#e\\f\~g^h{i}j\$k\|l&lt;m&gt;n\*o\`p\[q\](r)" in row
    assert row.endswith("| cls | **0.333**† | -0.250 |")
    assert lines[-3:] == ["† 95% sure", "", "second"]
    assert escape_markdown("two\nlines\tof text") == "two lines of text"


def test_unlabelled_blocks_are_still_set_apart() -> None:
    table = Table("", ["run", "RR"], [Block("", [[Cell("a"), number(1.0)]]), Block("", [[Cell("b"), number(0.5)]])])
    assert table.markdown().splitlines()[2:] == ["| a | 1.000 |", "|  |  |", "| b | 0.500 |"]
    assert table.latex().count(r"\midrule") == 2
    assert table.csv() == "run,RR\na,1.0\nb,0.5\n"


def test_csv_keeps_every_digit_and_no_marks_in_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(zero_shot().csv())))
    assert list(rows[0]) == ["block", "system", "pooling", "sci_fact", "sci_fact marks", "fiqa"]
    assert (rows[0]["block"], rows[0]["fiqa"], rows[0]["sci_fact marks"]) == ("published", "", "")
    assert rows[1]["system"] == HOSTILE
    assert float(rows[1]["sci_fact"]) == 1 / 3
    assert rows[1]["sci_fact marks"] == "bold †"


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0")), st.floats(0, 1))))
def test_csv_round_trips(rows: list[tuple[str, float]]) -> None:
    again = list(csv.reader(io.StringIO(csv_text(["name", "value"], rows))))
    assert [(cell_text(name), float(value)) for name, value in again[1:]] == rows


def test_the_screen_gets_everything_whatever_its_width() -> None:
    table = Table(
        "Zero-shot",
        ["system", "sci_fact"],
        [
            Block("published", [[Cell("[bold]x[/bold]"), number(12.5)]]),
            Block("ours", [[Cell("y" * 90), number(0.5, bold=True, marks="†")], [Cell("z"), MISSING]]),
        ],
        ["a note " * 30],
    )
    plain = table.terminal()
    lines = plain.splitlines()
    assert "\x1b" not in plain
    assert lines[0] == "Zero-shot"
    assert "[bold]x[/bold]" in plain  # markup in names is not markup
    assert lines[-1] == table.notes[0]
    assert lines[8].startswith("y" * 90)
    assert lines[8].endswith("*0.500*†")
    assert lines[5].index("12.500") + 6 == lines[8].index("*†")  # digits stand under digits
    narrow = table.terminal(40, styled=True)
    assert "\x1b[1m" in narrow
    assert "*0.500*" not in narrow
    assert "y" * 90 in narrow
    assert max(map(len, narrow.splitlines()[-5:])) <= 40


def test_rows_must_fit_the_header() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells under a header of 2"):
        Table("", ["run", "RR"], [Block("", [[Cell("a")]])])


def test_numbers_that_round_to_zero_have_no_sign() -> None:
    assert number(-0.0001).text == "0.000"
    assert number(12.3456, digits=1).text == "12.3"


@pytest.fixture
def comparison() -> Comparison:
    base = {f"q{i}": i / 20 for i in range(20)}
    close = {q: v + (0.01 if i % 2 else -0.012) for i, (q, v) in enumerate(base.items())}
    scores = {
        "run_a": {"nDCG@10": base, "R@5": close},
        "run_b": {"nDCG@10": close, "R@5": base},
        "run_c": {"nDCG@10": {q: v / 3 for q, v in base.items()}, "R@5": base},
    }
    return compare_scores(scores, missing={"run_c": 4})


def test_the_paper_marks_of_a_comparison(comparison: Comparison) -> None:
    table = comparison_table(comparison, "Title")
    assert table.header == ["run", "nDCG@10", "R@5"]
    cells = {row[0].text: [(cell.bold, cell.marks) for cell in row[1:]] for row in table.blocks[0].rows}
    # The reference itself is bold and has no dagger; run_c ties with run_b on R@5, so that it is both.
    assert cells == {
        "run_a": [(True, ""), (False, "†")],
        "run_b": [(False, "†"), (True, "")],
        "run_c": [(False, ""), (True, "†")],
    }
    method, detectable, missing = table.notes
    how = "paired TOST, bound 0.05, p < 0.05, n = 20 queries, Bonferroni over 2 comparisons per measure"
    assert f"†: equivalent to the best run ({how})" in method
    found = [comparison.row("nDCG@10", run).difference for run in ("run_b", "run_c")]
    low, high = (round(d.detectable, 3) for d in found if d)
    assert f"{low} to {high} (nDCG@10)" in detectable
    assert missing == "run_c lacks 4 of the queries, counted as 0."


def test_the_details_of_a_comparison(comparison: Comparison) -> None:
    table = details_table(comparison)
    assert [block.label for block in table.blocks] == ["nDCG@10", "R@5"]
    reference, close, far = table.blocks[0].rows
    assert reference[2].text == "reference"
    d = comparison.row("nDCG@10", "run_c").difference
    assert d is not None
    texts = dict(zip(table.header, far, strict=True))
    assert texts["difference"].text == f"{d.mean.mean:.3f} ± {d.mean.high - d.mean.mean:.3f}"
    assert texts["p t"].value == d.t.bonferroni
    assert texts["p t"].bold == d.different
    assert texts["W/T/L"].text == "0/1/19"
    assert dict(zip(table.header, close, strict=True))["p TOST"].text == "<0.001"
    assert "Bonferroni over 2 comparisons per measure" in table.notes[0]


def test_the_csv_of_a_comparison_holds_every_number(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_csv(comparison))))
    assert len(rows) == len(comparison.rows) == 6
    for line, row in zip(rows, comparison.rows, strict=True):
        assert (line["measure"], line["run"], line["reference"]) == (row.measure, row.run, row.reference)
        assert tuple(float(line[name]) for name in ("mean", "mean_low", "mean_high")) == row.mean
        assert line["is_best"] == str(row.is_best)
        assert int(line["missing"]) == (4 if row.run == "run_c" else 0)
        assert (line["bound"], line["alpha"], line["correction"]) == ("0.05", "0.05", "bonferroni")
        d = row.difference
        if d is None:
            assert line["difference"] == line["p_tost"] == line["wins"] == line["equivalent"] == ""
            continue
        assert tuple(float(line[f"difference{end}"]) for end in ("", "_low", "_high")) == d.mean
        for test in ("tost", "non_inferiority", "t", "fisher"):
            p = getattr(d, test)
            found = [float(line[f"p_{test}{end}"]) for end in ("", "_bonferroni", "_holm")]
            assert found == [p.plain, p.bonferroni, p.holm]
        assert [int(line[name]) for name in ("wins", "ties", "losses")] == [d.wins, d.ties, d.losses]
        assert float(line["detectable"]) == d.detectable
        assert line["equivalent"] == str(d.equivalent)


def test_the_notes_follow_the_settings() -> None:
    scores = {run: {"MRR": {"fiqa": value, "quora": 0.5}} for run, value in {"a": 0.5, "b": 0.25}.items()}
    plain = compare_scores(scores, "b", bound=0.1, alpha=0.01, correction="none", unit="data sets")
    how = "paired TOST, bound 0.1, p < 0.01, n = 2 data sets, not corrected"
    assert f"equivalent to b ({how})" in comparison_table(plain).notes[0]
    assert "99% confidence" in details_table(plain).notes[0]
    assert "data sets won, tied, lost" in details_table(plain).notes[0]
    corrected = comparison_table(compare_scores(scores, correction="holm"))
    assert "Holm over 1 comparison per measure" in corrected.notes[0]


def test_on_a_narrow_screen_long_texts_are_wrapped_and_numbers_are_whole() -> None:
    words = "a claim that is much longer than a screen is wide " * 3
    rows = [[Cell(words.strip()), number(0.123456, 6), Cell("holds")], [Cell("short"), number(0.5, 6), Cell("holds")]]
    table = Table("Claims", ["claim", "share", "here"], [Block("", rows)])
    lines = table.terminal(60).splitlines()
    assert max(map(len, lines)) <= 60
    assert any("0.123456" in line for line in lines)
    assert len(table.terminal(200).splitlines()) == len(table.terminal().splitlines()) < len(lines)
    narrow = table.terminal(10).splitlines()  # too narrow for the numbers: wider than the screen, but whole
    assert any("0.123456" in line and "holds" in line for line in narrow)
