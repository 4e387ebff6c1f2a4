"""The inverse of packing: a study's folder again, in which `remargin reproduce` trains what is missing."""

from __future__ import annotations

from pathlib import Path

from remargin.errors import InputError
from remargin.evaluation.measures import Evaluation
from remargin.files.atomic import new_folder
from remargin.files.checksums import sha256
from remargin.files.headers import CHECKSUM, write_header
from remargin.study.files import KEPT, Packed
from remargin.study.header import FILE as STUDY
from remargin.study.targets import BatchTargets, write_targets


def unpack_study(packed: Path, out: Path, overwrite: bool = False) -> Path:
    """Write the files of a packed study as they were before. Models are not among them: they are trained when needed.

    Raises:
        InputError: if the packed study is damaged, or names files elsewhere, or if `out` exists.
    """
    files = Packed(packed)
    with new_folder(out, overwrite, STUDY) as folder:
        (folder / STUDY).write_bytes((packed / STUDY).read_bytes())
        for path, scores in files.all_scores.items():
            Evaluation(scores, missing=[], judged={}).save(_place(folder, packed, path))
        for path, content in files.all_content.items():
            place = _place(folder, packed, path)
            if isinstance(content, list):
                write_targets(place, [BatchTargets(*row) for row in content])
                continue
            header = {name: value for name, value in content.items() if name != CHECKSUM}
            for scores_of in (header.get("scores") or {}).values():  # compressed anew, to other bytes perhaps
                scores_of.update({name: sha256(place.parent / name) for name in scores_of})
            write_header(place, header)
    return out


def _place(folder: Path, packed: Path, path: Path) -> Path:
    inside = path.relative_to(packed) if path.is_relative_to(packed) else path
    if ".." in inside.parts or inside.parts[:1] not in [(name,) for name in KEPT]:
        raise InputError(f"has a file {inside} that no study has", file=packed, do="get it from where it was packed")
    place = folder / inside
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
