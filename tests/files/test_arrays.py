"""Arrays in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from remargin.errors import InputError
from remargin.files.arrays import RangeReader, map_array


def test_a_reader_can_be_sent_to_another_process(tmp_path: Path) -> None:
    import pickle

    np.arange(9, dtype=np.uint16).tofile(tmp_path / "a.bin")
    reader = pickle.loads(pickle.dumps(RangeReader(tmp_path / "a.bin", np.uint16, 9)))
    assert reader.read(np.array([3]), np.array([2])).tolist() == [3, 4]


def test_arrays_in_files_are_read_and_their_size_is_checked(tmp_path: Path) -> None:
    written = np.arange(300, dtype=np.uint32).reshape(-1, 3)
    path = tmp_path / "rows.bin"
    written.tofile(path)
    np.testing.assert_array_equal(map_array(path, np.uint32, (100, 3)), written)
    stretches = RangeReader(path, np.uint32, 300).read(np.array([7, 0, 299, 5]), np.array([3, 1, 1, 0]))
    assert stretches.tolist() == [7, 8, 9, 0, 299]
    for read in (lambda p: map_array(p, np.uint32, (100,)), lambda p: RangeReader(p, np.uint32, 100)):
        with pytest.raises(InputError, match="1,200 bytes long, its header says 400 bytes"):
            read(path)
        with pytest.raises(InputError, match="missing"):
            read(tmp_path / "nothing.bin")
    (tmp_path / "empty.bin").touch()
    assert map_array(tmp_path / "empty.bin", np.uint32, (0, 3)).shape == (0, 3)
