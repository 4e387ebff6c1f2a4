"""Packs a study into results/paper: its runs and per-query scores, a digest of every table and figure, one picture.

    python benchmarks/pack.py runs/medquad results/paper/medquad
    python benchmarks/pack.py results/paper/medquad                 # digests and picture again, of a new table, say
    python benchmarks/pack.py runs/beyond results/beyond            # a folder of studies: packed, each in its folder
    python benchmarks/pack.py --unpack results/beyond runs/beyond   # the way back, so that `reproduce` can go on there

tests/test_results.py draws every section from the packed files and compares it with its digest, so that no published
cell can change unnoticed. `remargin report results/paper/medquad --out page.html` makes the page.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from remargin.files.headers import write_header
from remargin.paper.pages import draw_packed
from remargin.reports.collect import studies_in
from remargin.reports.sections import Section
from remargin.study.files import pack_study
from remargin.study.header import is_study
from remargin.study.results import Results
from remargin.study.unpacked import unpack_study

DIGESTS, FORMAT = "digests.json", "remargin-digests-1"
PICTURE, PICTURED = "static-margins", "medquad"  # what README shows, of which study


def digest(section: Section) -> str:
    """A hash of all that a section shows: its tables and figures as JSON, Markdown, LaTeX, CSV and SVG."""
    texts = [json.dumps(section.to_json(), sort_keys=True), *(f"{name}\n{text}" for name, text in section.files())]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def drawn(folder: Path) -> dict[str, Section]:
    """Every section of a packed study."""
    return draw_packed(Results.open(folder, say=lambda line: None))


def picture(section: Section) -> str:
    """The section's figure."""
    return next(text for name, text in section.files() if name.endswith(".svg"))


def main() -> None:
    """Pack a study, or every study in a folder; or unpack."""
    if sys.argv[1] == "--unpack":
        packed, out = map(Path, sys.argv[2:])
        for folder in [packed] if is_study(packed) else studies_in(packed):
            unpack_study(folder, out / folder.relative_to(packed))
        return
    *study, out = map(Path, sys.argv[1:])
    if study and not is_study(study[0]):
        for folder in studies_in(study[0]):
            pack_study(folder, out / folder.name, overwrite=True)
        return  # their tables are on a page, which tests/test_readme.py compares
    if study:
        pack_study(study[0], out, overwrite=True)
    sections = drawn(out)
    write_header(
        out / DIGESTS, {"format": FORMAT, "sha256": {name: digest(sections[name]) for name in sorted(sections)}}
    )
    if out.name == PICTURED:
        (out / f"{PICTURE}.svg").write_text(picture(sections[PICTURE]))


if __name__ == "__main__":
    main()
