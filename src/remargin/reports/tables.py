"""Tables for the terminal, for Markdown, for LaTeX and as CSV, from one description."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from remargin.data.tables import spreadsheet_cell
from remargin.errors import printable

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "–": "--",
        "−": "$-$",
        "±": r"$\pm$",
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
    }
)
_MARKDOWN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", **{sign: f"\\{sign}" for sign in "\\`*_|[]~$"}})


_UNBOUNDED = 100_000  # columns of a screen on which nothing is wrapped
_LONG = 30  # characters of a text that may be wrapped


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table: a text, perhaps bold, perhaps with marks after it such as a dagger.

    A number keeps its full precision in `value`, for CSV. See `number`, and `MISSING` for a place with nothing in it.

    >>> Cell("0.712", bold=True, marks="†").text
    '0.712'
    """

    text: str
    bold: bool = False
    marks: str = ""
    value: float | None = None


MISSING = Cell("–")


def number(value: float | None, digits: int = 3, bold: bool = False, marks: str = "") -> Cell:
    """A cell with a number in it, or `MISSING` for None.

    >>> number(0.71234), number(None).text
    (Cell(text='0.712', bold=False, marks='', value=0.71234), '–')
    """
    return MISSING if value is None else Cell(f"{value:z.{digits}f}", bold, marks, value)


@dataclass
class Block:
    """Rows of a table that belong together, set off from the next block by a rule.

    >>> Block("published", [[Cell("BM25"), number(0.665)]]).label
    'published'
    """

    label: str = ""
    rows: list[list[Cell]] = field(default_factory=list)


@dataclass
class Table:
    """A table: a title, a header, blocks of rows, and notes under it. Columns with numbers in them are set flush right.

    >>> blocks = [Block("published", [[Cell("BM25"), number(0.6647), number(None)]])]
    >>> blocks += [Block("measured", [[Cell("ours_v2"), number(0.71, bold=True, marks="†"), number(0.25)]])]
    >>> table = Table("Zero-shot", ["system", "scifact", "fiqa"], blocks, ["† as good as the best"])
    >>> print(table.markdown())
    **Zero-shot**
    <BLANKLINE>
    | system | scifact | fiqa |
    | --- | ---: | ---: |
    | *published* |  |  |
    | BM25 | 0.665 | – |
    | *measured* |  |  |
    | ours\\_v2 | **0.710**† | 0.250 |
    <BLANKLINE>
    † as good as the best
    <BLANKLINE>
    """

    title: str
    header: list[str]
    blocks: list[Block]
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for row in self._rows():
            if len(row) != len(self.header):
                raise ValueError(f"a row of {len(row)} cells under a header of {len(self.header)}")

    def markdown(self) -> str:
        """As Markdown, with a line of its own for the label of each block."""
        lines = [f"**{escape_markdown(self.title)}**", ""] if self.title else []
        lines.append(_pipes(escape_markdown(name) for name in self.header))
        lines.append(_pipes("---:" if right else "---" for right in self.numeric()))
        for i, block in enumerate(self.blocks):
            if block.label or i > 0:
                label = f"*{escape_markdown(block.label)}*" if block.label else ""
                lines.append(_pipes([label, *[""] * (len(self.header) - 1)]))
            lines += [_pipes(map(_markdown_cell, row)) for row in block.rows]
        for note in self.notes:
            lines += ["", escape_markdown(note)]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        r"""As a LaTeX table with the rules of booktabs.

        >>> print(Table("R&D", ["run", "RR"], [Block("", [[Cell("a_b"), number(0.5, marks="†")]])]).latex())
        % needs \usepackage{booktabs}
        \begin{table}
        \centering
        \caption{R\&D}
        \begin{tabular}{lr}
        \toprule
        run & RR \\
        \midrule
        a\_b & 0.500\textsuperscript{$\dagger$} \\
        \bottomrule
        \end{tabular}
        \end{table}
        <BLANKLINE>
        """
        alignment = "".join("r" if right else "l" for right in self.numeric())
        lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering"]
        lines += [rf"\caption{{{escape_latex(self.title)}}}"] if self.title else []
        lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", _ampersands(map(escape_latex, self.header))]
        for block in self.blocks:
            lines.append(r"\midrule")
            if block.label:
                lines.append(rf"\multicolumn{{{len(self.header)}}}{{l}}{{\emph{{{escape_latex(block.label)}}}}} \\")
            lines += [_ampersands(map(_latex_cell, row)) for row in block.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        for note in self.notes:
            lines += ["", rf"{{\footnotesize {escape_latex(note)}\par}}"]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def csv(self) -> str:
        """As CSV: numbers with all their digits, and what is bold or marked in a column of its own. Without the notes.

        >>> print(Table("", ["run", "RR"], [Block("ours", [[Cell("a"), number(2 / 3, bold=True)]])]).csv())
        block,run,RR,RR marks
        ours,a,0.6666666666666666,bold
        <BLANKLINE>
        """
        labelled = any(block.label for block in self.blocks)
        marked = [any(cell.bold or cell.marks for cell in column) for column in self._columns()]
        header = ["block"] if labelled else []
        for name, has_marks in zip(self.header, marked, strict=True):
            header += [name, f"{name} marks"] if has_marks else [name]
        rows: list[list[object]] = []
        for block in self.blocks:
            for row in block.rows:
                fields: list[object] = [block.label] if labelled else []
                for cell, has_marks in zip(row, marked, strict=True):
                    text = "" if cell == MISSING else cell.text
                    fields.append(text if cell.value is None else cell.value)
                    fields += [" ".join(["bold"] * cell.bold + [cell.marks] * bool(cell.marks))] if has_marks else []
                rows.append(fields)
        return csv_text(header, rows)

    def terminal(self, width: int | None = None, styled: bool = False) -> str:
        """As text for the screen. Notes and long texts are wrapped to `width`; else a table is as wide as it has to be.

        With `styled`, bold cells are bold; without, they stand between asterisks.

        >>> rows = [[Cell("a"), number(0.5, marks="†")], [Cell("b"), number(0.75, bold=True)]]
        >>> print(Table("", ["run", "RR"], [Block("", rows)]).terminal())
        ────────────
        run       RR
        ────────────
        a     0.500†
        b    *0.750*
        ────────────
        <BLANKLINE>
        """
        import rich.box
        import rich.console
        import rich.table
        from rich.text import Text

        table = rich.table.Table(box=rich.box.HORIZONTALS, padding=(0, 1, 0, 0), pad_edge=False)
        columns = [
            _screen_column(name, cells, styled) for name, cells in zip(self.header, self._columns(), strict=True)
        ]
        widths = [max(map(len, (header, *texts))) + 1 for header, texts in columns]
        too_wide = width is not None and sum(widths) > width
        words = [max((len(word) for text in texts for word in text.split()), default=0) for _, texts in columns]
        wraps = [too_wide and word < _LONG < each for each, word in zip(widths, words, strict=True)]
        for (header, _), wrap in zip(columns, wraps, strict=True):
            table.add_column(Text(header, "bold"), no_wrap=not wrap)
        least = sum(_LONG if wrap else each for each, wrap in zip(widths, wraps, strict=True)) + 2
        row = 0
        for block in self.blocks:
            table.add_section()
            if block.label:
                table.add_row(Text(printable(block.label), "italic"))
            for cells in block.rows:
                texts = [texts[row] for _, texts in columns]
                table.add_row(*(Text(t, "bold" if c.bold else "") for t, c in zip(texts, cells, strict=True)))
                row += 1
        out = io.StringIO()
        console_width = max(width or 0, least) if any(wraps) else _UNBOUNDED
        console = rich.console.Console(file=out, width=console_width, force_terminal=styled, highlight=False)
        console.print(table)
        lines = [line[1:].rstrip() for line in out.getvalue().splitlines()]  # without the edge of the box
        lines = [printable(self.title), *lines] if self.title else lines
        for note in map(printable, self.notes):
            lines += textwrap.wrap(note, width) if width else [note]
        return "\n".join(lines) + "\n"

    def _rows(self) -> list[list[Cell]]:
        return [row for block in self.blocks for row in block.rows]

    def _columns(self) -> list[list[Cell]]:
        return [[row[i] for row in self._rows()] for i in range(len(self.header))]

    def numeric(self) -> list[bool]:
        """For each column, whether there are numbers in it."""
        return [any(cell.value is not None for cell in column) for column in self._columns()]


def table_json(table: Table) -> dict[str, Any]:
    """A table as plain values for JSON; numbers that JSON does not have as text.

    >>> table = Table("Means", ["run", "RR"], [Block("", [[Cell("a"), number(0.5)], [Cell("b"), MISSING]])])
    >>> table_json(table)["blocks"][0]["rows"]
    [[{'text': 'a'}, {'text': '0.500', 'value': 0.5}], [{'text': 'b'}, {'text': '–'}]]
    """
    values = asdict(table)
    for block in values["blocks"]:
        block["rows"] = [[_cell_json(cell) for cell in row] for row in block["rows"]]
    return values


def table_from_json(values: dict[str, Any]) -> Table:
    """The table that `table_json` made these values of.

    >>> table = Table("Means", ["run", "RR"], [Block("", [[Cell("a"), number(0.5, bold=True)]])], ["a note"])
    >>> table_from_json(table_json(table)) == table
    True
    """
    blocks = [
        Block(block["label"], [[_cell(cell) for cell in row] for row in block["rows"]]) for block in values["blocks"]
    ]
    return Table(**values | {"blocks": blocks})


def _cell_json(cell: dict[str, Any]) -> dict[str, Any]:
    """A cell as plain values: its text, and bold, marks and value only where it has them."""
    kept = {name: cell[name] for name in ("text", "bold", "marks") if name == "text" or cell[name]}
    value = cell["value"]
    return kept if value is None else kept | {"value": value if math.isfinite(value) else str(value)}


def _cell(values: dict[str, Any]) -> Cell:
    value = values.get("value")
    return Cell(**values | {"value": float(value) if isinstance(value, str) else value})


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, floats with all the digits that bring them back, and no text that a spreadsheet would compute.

    >>> csv_text(["run", "mean"], [["a,b", 0.1 + 0.2], ["c", None]])
    'run,mean\\n"a,b",0.30000000000000004\\nc,\\n'
    """
    out = io.StringIO()
    safe = ([spreadsheet_cell(f) if isinstance(f, str) else f for f in fields] for fields in [header, *rows])
    csv.writer(out, lineterminator="\n").writerows(safe)
    return out.getvalue()


def escape_latex(text: str) -> str:
    r"""Text that LaTeX sets as it is, on one line.

    >>> escape_latex("50% of a_b")
    '50\\% of a\\_b'
    """
    return _one_line(text).translate(_LATEX)


def escape_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line, inside a table too.

    >>> escape_markdown("a|b_c")
    'a\\|b\\_c'
    """
    return _one_line(text).translate(_MARKDOWN)


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _screen_column(name: str, cells: list[Cell], styled: bool) -> tuple[str, list[str]]:
    """A header and the texts under it, numbers flush right and their marks after them."""
    name = printable(name)
    texts = [printable(cell.text if styled or not cell.bold else f"*{cell.text}") for cell in cells]
    tails = [printable(cell.marks if styled or not cell.bold else f"*{cell.marks}") for cell in cells]
    if all(cell.value is None for cell in cells):
        return name, [text + tail for text, tail in zip(texts, tails, strict=True)]
    tail_width = max(map(len, tails))
    width = max(len(name) - tail_width, *map(len, texts))
    aligned = [text.rjust(width) + tail for text, tail in zip(texts, tails, strict=True)]
    return name.rjust(width + tail_width), aligned


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    return (f"**{text}**" if cell.bold else text) + escape_markdown(cell.marks)


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell.text if cell.value is None else cell.text.replace("-", "−"))
    text = rf"\textbf{{{text}}}" if cell.bold else text
    return text + (rf"\textsuperscript{{{escape_latex(cell.marks)}}}" if cell.marks else "")


def _pipes(fields: Iterable[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def _ampersands(fields: Iterable[str]) -> str:
    row = " & ".join(fields) + r" \\"
    return "{}" + row if row.startswith(("[", "*")) else row  # else the \\ before would take it for its argument
