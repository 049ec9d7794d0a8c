"""What Ditto's tables print, kept in ``printed.json``: mean accuracy over benign clients and its standard deviation.

A table of the file has ``columns`` and, by row, ``[mean, deviation]`` for each of them. The rows ``ditto-best`` (one
fixed lambda for all) and ``ditto-auto`` (each client chooses) of the full tables are those of Table 4. The last table
is not the paper's: it is what the surrogate S(q) gave when it was designed, so a build that differs by more than its
random streams shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.papers.engine.experiment import Printed
from holdfast.papers.engine.jsonfile import expect_keys, number, read_json

#: Entries by column, then row.
Table = Mapping[str, Mapping[str, tuple[float, float]]]

_WEAK = ("clean", "a1-20", "a1-50", "a1-80", "a2-20", "a2-50", "a2-80")
#: The columns of the full tables, by data set; the number is the share of malicious clients in percent.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "vehicle": (*_WEAK, "a3-10", "a3-20", "a3-50"),
    "femnist": (*_WEAK, "a3-10", "a3-15", "a3-20"),
    "fashion-mnist": (*_WEAK, "a3-10", "a3-20", "a3-50"),
    "femnist-skewed": (*_WEAK, "a3-10", "a3-15", "a3-20"),
    "celeba-leaf": (*_WEAK, "a3-10", "a3-15", "a3-20"),
    "stackoverflow": (*_WEAK, "a3-10", "a3-20", "a3-50"),
}
SURROGATE_COLUMNS = tuple(f"s{q} {column}" for q in (10, 5) for column in ("clean", "a1-50", "a1-80", "a2-50", "a3-20"))


def table_from_json(stored: Mapping[str, Any]) -> Table:
    """A table of the file.

    Raises:
        ValueError: if a row doesn't have an entry per column.

    Example:
        >>> table_from_json({"columns": ["clean", "a1-20"], "rows": {"global": [[0.911, 0.08], [0.897, 0.08]]}})
        {'clean': {'global': (0.911, 0.08)}, 'a1-20': {'global': (0.897, 0.08)}}
    """
    expect_keys(stored, "columns rows")
    table: dict[str, dict[str, tuple[float, float]]] = {column: {} for column in stored["columns"]}
    for row, entries in stored["rows"].items():
        for column, (mean, deviation) in zip(table, entries, strict=True):
            table[column][row] = (number(mean), number(deviation))
    return table


def printed(table: Table, column: str, rows: Iterable[str], mean: str = "pooled") -> dict[str, Printed]:
    """What a table prints for some rows of a column, by metric.

    Args:
        table: the table.
        column: the column.
        rows: rows whose numbers are wanted; those that are not in the table are left out.
        mean: which mean the table's first number is.
    """
    metrics = {}
    for row in rows:
        if row in table.get(column, {}):
            metrics[f"{row}/{mean}"], metrics[f"{row}/std"] = map(Printed, table[column][row])
    return metrics


def _read() -> dict[str, dict[str, Table]]:
    def build(stored: Mapping[str, Any]) -> dict[str, dict[str, Table]]:
        return {kind: {name: table_from_json(one) for name, one in of.items()} for kind, of in stored.items()}

    return read_json(Path(__file__).with_name("printed.json"), "file of printed tables", build)


_TABLES = _read()

#: Tables 6 to 11 with the rows of Table 4, by data set. Which shares of malicious clients StackOverflow's columns of A3
#: belong to is not known: its local models fare there as under shares of 20, 50 and 80, not as the heading says. They
#: stand under names of their own, beside no run. Its median is that of a program that adds one number to all weights.
FULL: Mapping[str, Table] = _TABLES["full"]
TABLE_3: Table = _TABLES["personalized"]["all"]
#: Ditto on top of a robust aggregator (``robust-ditto``), by data set.
TABLE_5: Mapping[str, Table] = _TABLES["robust"]
#: Means over clients, of three seeds; another stream of random numbers may differ by 0.03.
SURROGATE: Table = _TABLES["surrogate"]["all"]
