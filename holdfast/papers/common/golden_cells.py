"""What golden cells compute that no table does: several small cells in a row, so that one cell reaches many rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.papers.engine.kinds import function_of


def together(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Compute cells one after the other; the witness of the run sees all of them.

    Args:
        settings: ``cells``: by name, ``kind`` and ``settings`` of each.
        seed: of all of them.

    Returns:
        ``NAME/METRIC`` of each.
    """
    every_metric = dict[str, float]()
    for name, cell in settings["cells"].items():
        metrics = function_of(cell["kind"])(settings=cell["settings"], seed=seed)
        every_metric |= {f"{name}/{metric}": value for metric, value in metrics.items()}
    return every_metric
