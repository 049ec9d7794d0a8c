"""What Table 1 of PDE computes: one network of the synthetic study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.data.sets.images.patches import PatchData
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.theory.spurious.patch_study import Schedule, train_on_patches

#: What is continuous in the weights; accuracies are steps.
_WITNESSED = ("loss", "probe", "buffer")


def study(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Train one network of the synthetic study.

    Args:
        settings: ``data`` (options of `PatchData`), ``model`` (``cubic`` or ``cubic-pure``) and ``schedule`` (fields of
            `Schedule`).
        seed: of the data, the start and every draw.

    Returns:
        What `train_on_patches` measures.
    """
    data = pinned(PatchData, **settings["data"], seed=seed)
    metrics = train_on_patches(data, settings["model"], pinned(Schedule, **settings["schedule"]), seed)
    tell("", {name: value for name, value in metrics.items() if any(part in name for part in _WITNESSED)})
    return metrics
