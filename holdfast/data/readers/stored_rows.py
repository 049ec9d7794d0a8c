"""Rows that stay on disk: a file is copied once into Arrow's own format, which is memory-mapped and read row by row.

JSON lines have no index and parquet can't be read at a place, so neither can be looked at in the order of a shuffle.
The copy can: a row costs a page of memory while it is read, however many rows there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]

#: Rows of a batch, in the file and in memory.
_BATCH = 4096
_LINE, _NUMBER = "line", "number"


class StoredRows(Sequence[Any]):
    """Rows of a memory-mapped table: mappings, or lines of JSON as they were read.

    Args:
        table: the rows; lines have the columns ``line`` and ``number``.
        lines: whether rows are lines.
        positions: of the rows that belong to this sequence; all by default.
    """

    def __init__(self, table: pa.Table, *, lines: bool, positions: Ints | None = None) -> None:
        self._table, self.lines = table, lines
        self._positions = np.arange(len(table)) if positions is None else positions

    @classmethod
    def of_file(cls, path: Path, store: Path) -> StoredRows:
        """Copy a file into `store` and map it.

        Args:
            path: a ``.jsonl`` or ``.parquet`` file.
            store: a file that is made; whoever asked for it removes it.

        Raises:
            DataError: if the file is neither, or can't be read.
        """
        import pyarrow as pa  # noqa: PLC0415 - takes a while

        if path.suffix not in (".jsonl", ".parquet"):
            raise DataError(f"{path} can only be read as a whole; make it .jsonl or .parquet to leave it on disk")
        try:
            schema, batches = _lines(path) if path.suffix == ".jsonl" else _parquet(path)
            with pa.OSFile(str(store), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path} can't be read ({error}); is it the whole file?") from error
        table = pa.ipc.open_file(pa.memory_map(str(store))).read_all()
        return cls(table, lines=path.suffix == ".jsonl")

    @property
    def column_names(self) -> list[str]:
        """Of a table."""
        return list(self._table.column_names)

    def number(self, place: int) -> int:
        """What a row is called in messages: its line or row, from 1."""
        position = int(self._positions[place])
        return int(self._table.column(_NUMBER)[position].as_py()) if self.lines else position + 1

    def take(self, positions: Ints) -> StoredRows:
        """Some of the rows, in the order of `positions`, which stay where they are."""
        return StoredRows(self._table, lines=self.lines, positions=self._positions[positions])

    def table(self, start: int, stop: int) -> pa.Table:
        """Some neighbouring rows in memory."""
        return self._table.take(self._positions[start:stop])

    @property
    def schema(self) -> pa.Schema:
        """Of the table."""
        return self._table.schema

    def encoded(self, suffix: str) -> bytes:
        """The rows as a file: ``.jsonl``, ``.json`` or ``.parquet``, as they were read."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        if suffix == ".parquet" and not self.lines:
            sink = pa.BufferOutputStream()
            with pq.ParquetWriter(sink, self.schema) as writer:
                for start in range(0, len(self), _BATCH):
                    writer.write_table(self.table(start, start + _BATCH))
            return bytes(sink.getvalue().to_pybytes())
        texts = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in self)
        return "".join(f"{text}\n" for text in texts).encode(errors="backslashreplace")

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Any] | str: ...
    @overload
    def __getitem__(self, place: slice) -> StoredRows: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return StoredRows(self._table, lines=self.lines, positions=self._positions[place])
        return self._plain(self._table.slice(int(self._positions[place]), 1))[0]

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _BATCH):
            yield from self._plain(self.table(start, start + _BATCH))

    def _plain(self, part: pa.Table) -> list[Any]:
        rows: list[Any] = part.column(_LINE).to_pylist() if self.lines else part.to_pylist()
        return rows


def _lines(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow as pa  # noqa: PLC0415

    schema = pa.schema([(_LINE, pa.large_string()), (_NUMBER, pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        texts, numbers = list[str](), list[int]()
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    texts.append(line.rstrip("\n"))
                    numbers.append(number)
                if len(texts) == _BATCH:
                    yield pa.record_batch([pa.array(texts, pa.large_string()), pa.array(numbers)], schema=schema)
                    texts, numbers = [], []
        if texts:
            yield pa.record_batch([pa.array(texts, pa.large_string()), pa.array(numbers)], schema=schema)

    return schema, batches()


def _parquet(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    file = pq.ParquetFile(path)
    return file.schema_arrow, file.iter_batches(_BATCH)
