"""Rows of Parquet files, unpacked only as far as a table of texts would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remargin.errors import InputError
from remargin.files.unpacking import HARMLESS

# Columns keep each distinct value once, so tables that repeat long texts are far smaller than these texts.
LARGEST_RATIO = 1_000  # of unpacked bytes to those of the file
LONGEST_CELL = 1 << 25  # bytes, as the longest line of a text file
ROWS = 4096  # in a batch
AT_ONCE = 1 << 28  # bytes of rows that are unpacked at once


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, by column; without columns of dates and bytes, which hold no texts.

    Raises:
        InputError: if it cannot be read, or unpacks to far more than a table of texts would.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("Parquet needs pyarrow", file=path, do="pip install 'remargin[parquet]'") from None
    if not path.is_file():
        raise InputError("no such file", file=path, do="check the path")
    number, size = 0, 0
    try:
        with pq.ParquetFile(path) as file:
            kinds = pa.types
            columns = [f for f in file.schema_arrow if not (kinds.is_temporal(f.type) or kinds.is_binary(f.type))]
            leaves = [file.schema.column(i) for i in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        plain = pa.schema(columns)
        with pq.ParquetFile(path, read_dictionary=texts) as file:  # each distinct text once, however often it is there
            for batch in file.iter_batches(ROWS, columns=plain.names):
                unpacked = 8 * batch.num_rows + sum(_size(column, path, number + 1) for column in batch.columns)
                size += unpacked
                if size > HARMLESS and size > LARGEST_RATIO * path.stat().st_size:
                    problem = f"unpacks to more than {size >> 20:,} MiB, over {LARGEST_RATIO:,} times its size"
                    raise InputError(problem, file=path, line=number + 1, do="give another file")
                step = max(1, ROWS * AT_ONCE // max(unpacked, AT_ONCE))
                for start in range(0, batch.num_rows, step):
                    for values in batch.slice(start, step).cast(plain).to_pylist():
                        number += 1
                        yield values
    except InputError:
        raise
    except (pa.ArrowException, MemoryError, ValueError, OverflowError, OSError) as error:
        problem = f"not a readable Parquet file ({error})"
        raise InputError(problem, file=path, line=number + 1, do="write it again") from None


def _size(column: Any, path: Path, row: int) -> int:
    """The bytes that the texts in a column have when they are unpacked; about those of other values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    if kinds.is_dictionary(column.type):
        if not (kinds.is_string(column.type.value_type) or kinds.is_large_string(column.type.value_type)):
            return int(column.nbytes)
        lengths = pc.binary_length(column.dictionary)
        if (longest := pc.max(lengths).as_py() or 0) > LONGEST_CELL:
            problem = f"a text of {longest:,} bytes, more than {LONGEST_CELL:,}"
            raise InputError(problem, file=path, line=row, do="give a table with shorter texts")
        return int(pc.sum(lengths.take(column.indices).cast(pa.int64())).as_py() or 0)
    if kinds.is_list(column.type) or kinds.is_large_list(column.type):
        return _size(column.flatten(), path, row)
    if kinds.is_struct(column.type):
        return sum(_size(field, path, row) for field in column.flatten())
    return int(column.nbytes)
