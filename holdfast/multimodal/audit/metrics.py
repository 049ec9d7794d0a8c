"""Right, and right for the right reason: accuracies by group, and how far explanation maps cover the object.

Equations 7.8 and 7.9 of the dissertation (https://escholarship.org/uc/item/0399v1qw, Section 7.4.3). Accuracies of a
run come from `GroupReport` (its `train_mix` is the adjusted average); the functions here take group values as printed
tables have them. AIoU compares the map of the true class with those of the others on the object: above one half, the
true class's map covers it best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import DataError
from holdfast.training.evaluation.group_report import GroupReport


def adjusted_average(accuracies: Sequence[float], train_counts: Sequence[int]) -> float:
    """Group accuracies weighted by how often the groups occur in training.

    Args:
        accuracies: one per group.
        train_counts: training examples of each group.

    Returns:
        ``sum_g (n_g / N) acc_g``.

    Example:
        >>> round(adjusted_average([93.44, 44.92, 59.03, 91.59], [3498, 184, 56, 1057]), 1)  # CLIP RN50, Waterbirds
        90.8
    """
    if len(accuracies) != len(train_counts) or sum(train_counts) <= 0:
        raise DataError(
            f"there are {len(accuracies)} accuracies and {len(train_counts)} training counts; give one count per "
            "group, and a group with training examples"
        )
    return float(np.average(np.asarray(accuracies, float), weights=np.asarray(train_counts, float)))


def soft_iou(maps: Tensor, regions: Tensor) -> Tensor:
    """How well maps cover regions, without a threshold (equation 7.8).

    Args:
        maps: from 0 to 1, (..., height, width).
        regions: boxes or masks, 0 or 1, of a shape that fits.

    Returns:
        ``sum min(M, B) / sum max(M, B)``; 0 where both are empty.
    """
    regions = regions.to(maps.dtype)
    low, high = torch.minimum(maps, regions), torch.maximum(maps, regions)
    return low.sum((-2, -1)) / high.sum((-2, -1)).clamp_min(torch.finfo(maps.dtype).tiny)


def adjusted_iou(maps: Tensor, labels: Tensor, regions: Tensor) -> Tensor:
    """IoU of the true class's map, against that of the class whose map covers the object most (equation 7.9).

    Args:
        maps: the map of every class, from 0 to 1, (n, classes, height, width).
        labels: int64 of shape (n,).
        regions: where the object is, 0 or 1, (n, height, width).

    Returns:
        float of shape (n,): 1 where only the true class's map touches the object, 0.5 where another covers it as well,
        0 where the true class's doesn't touch it.

    Raises:
        DataError: if shapes don't fit or there is a single class.
    """
    if maps.ndim != 4 or labels.shape != maps.shape[:1] or regions.shape != (len(maps), *maps.shape[2:]):
        raise DataError(
            f"maps have shape {tuple(maps.shape)}, labels {tuple(labels.shape)} and regions {tuple(regions.shape)}; "
            "give (n, classes, height, width), (n,) and (n, height, width)"
        )
    if maps.shape[1] < 2:
        raise DataError("AIoU compares classes and there is one; give the map of another class as well")
    by_class = soft_iou(maps, regions.unsqueeze(1))
    own = by_class.gather(1, labels[:, None])[:, 0]
    others = by_class.scatter(1, labels[:, None], -torch.inf).amax(1)
    return own / (own + others).clamp_min(torch.finfo(maps.dtype).tiny)


@dataclass(frozen=True)
class ExplanationScore:
    """AIoU of a test set, as the printed tables summarise it.

    Attributes:
        by_group: mean AIoU of each group, by name.
        worst_group: the group with the lowest accuracy.
    """

    by_group: dict[str, float]
    worst_group: str

    @property
    def average(self) -> float:
        """Mean over groups, every group alike."""
        return sum(self.by_group.values()) / len(self.by_group)

    @property
    def worst(self) -> float:
        """AIoU of the group with the lowest accuracy, which need not be the lowest AIoU."""
        return self.by_group[self.worst_group]

    @classmethod
    def of(cls, aiou: Tensor, groups: Tensor, report: GroupReport) -> ExplanationScore:
        """Summarise AIoU by the groups of a report.

        Args:
            aiou: of some examples that were explained, (n,).
            groups: their groups, int64 of shape (n,), numbered as in the report.
            report: accuracies on the whole test set.

        Returns:
            The score.

        Raises:
            DataError: if no example of the worst group was explained.
        """
        names = [score.name for score in report.by_group]
        scores = {names[g]: float(aiou[groups == g].mean()) for g in torch.unique(groups).tolist()}
        if report.worst.name not in scores:
            raise DataError(
                f"no example of the worst group, {report.worst.name}, was explained; explain some of each group"
            )
        return cls(scores, report.worst.name)


def tight_boxes(masks: Tensor) -> Tensor:
    """The smallest box around each mask, filled.

    Args:
        masks: 0 or 1, (n, height, width).

    Returns:
        bool of the same shape; empty for an empty mask.
    """
    return _span(masks.bool().any(2)).unsqueeze(2) & _span(masks.bool().any(1)).unsqueeze(1)


def filled_boxes(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes as masks: a pixel belongs to a box if its middle does.

    Args:
        boxes: left, top, right, bottom as fractions of the image, (n, 4).
        size: height and width of the masks.

    Returns:
        bool of shape (n, height, width).
    """
    rows = (torch.arange(size[0], device=boxes.device) + 0.5) / size[0]
    columns = (torch.arange(size[1], device=boxes.device) + 0.5) / size[1]
    left, top, right, bottom = boxes.unsqueeze(2).unbind(1)
    inside_rows, inside_columns = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return inside_rows.unsqueeze(2) & inside_columns.unsqueeze(1)


def _span(occupied: Tensor) -> Tensor:
    """Everything between the first and the last True of each row."""
    counted = occupied.int()
    return (counted.cummax(1).values & counted.flip(1).cummax(1).values.flip(1)).bool()
