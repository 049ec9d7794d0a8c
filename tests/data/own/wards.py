"""A small table that can be learned from, and a source around any columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.own.columns import understood
from holdfast.data.own.source import Source


def wards(n: int = 60, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    died = rng.integers(0, 2, n)
    return {
        "age": (50 + 10 * died + rng.normal(0, 5, n)).round(1).tolist(),
        "beds": rng.integers(1, 9, n).tolist(),
        "ward": rng.choice(["north", "south", "east"], n).tolist(),
        "sex": rng.choice(["f", "m"], n).tolist(),
        "label": np.where(died, "died", "lived").tolist(),
    }


def write_csv(path: Path, rows: dict[str, list[Any]], separator: str = ",") -> Path:
    lines = [separator.join(rows), *(separator.join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def source(columns: dict[str, Any], place: str = "table.csv") -> Source:
    return Source(place, understood(pa.table(columns)))


def column(values: list[Any], kind: Any = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])
