"""What a two-tower model is tuned and judged on: images, how they are said in words, and where the object is.

A task is made for a model, because images are preprocessed as it wants them. Data sets with public files are in
`holdfast.multimodal.tasks.waterbirds`, `imagenet_pair` and `folder_task`; rendered ones in `shapes` and `emoji`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.data.catalog import CatalogEntry
from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import Inputs
from holdfast.errors import ConfigError, DataError, nearest
from holdfast.multimodal.audit.attributes import Attributes
from holdfast.multimodal.audit.explanations import class_maps
from holdfast.multimodal.audit.metrics import ExplanationScore, adjusted_iou
from holdfast.multimodal.backends.base import TwoTowerModel
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.method.classifier import PromptClassifier
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.streams import torch_stream
from holdfast.training.evaluation.group_report import GroupReport

PARTS = ("train", "validation", "test")

#: How a small model is fine-tuned on rendered images, on a CPU.
SMALL_TASK_RECIPE: Mapping[str, object] = {
    "epochs": 25,
    "batch_size": 128,
    "learning_rate": 0.003,
    "weight_decay": 1e-4,
    "momentum": 0.9,
}

#: What counts as the object: the smallest box around it, or its outline.
Region = Literal["box", "mask"]


@dataclass(frozen=True, eq=False)
class ClipTask:
    """A data set as a two-tower model sees it.

    Attributes:
        splits: preprocessed images with labels, and attributes and groups where they are known.
        wording: names of classes and of the spurious attribute.
        regions: by part, where the object of each image is, bool of shape (height, width) each and aligned with the
            examples; parts whose objects nobody outlined are missing.
        shown: by part, what its images are known to show without asking a detector.
    """

    splits: Splits
    wording: Wording
    regions: Mapping[str, Inputs] = field(default_factory=dict)
    shown: Mapping[str, Attributes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part, regions in self.regions.items():
            if len(regions) != len(self.part(part)):
                raise DataError(
                    f"{len(regions)} objects are outlined in {len(self.part(part))} {part} images of "
                    f"{self.splits.name}; give a region for each"
                )

    def part(self, name: str) -> Examples:
        """The examples of a part."""
        if name not in PARTS:
            raise ConfigError(f"there is no part {name!r} of the data" + nearest(name, PARTS))
        examples: Examples = getattr(self.splits, name)
        return examples

    def known(self, part: str) -> Attributes:
        """What the images of a part are known to show: what the task says, else their attribute labels.

        Raises:
            DataError: if nothing is known.
        """
        if part in self.shown:
            return self.shown[part]
        examples = self.part(part)
        if examples.attributes is None:
            raise DataError(
                f"nothing is known of what the images of {self.splits.name} show; give a detector with a vocabulary, "
                "or a table of what is seen"
            )
        values = torch.arange(len(examples.attribute_names))
        return Attributes(examples.attribute_names, (examples.attributes[:, None] == values).numpy())

    def outlined(self, part: str, positions: Tensor) -> Tensor:
        """Where the object is, bool of shape (n, height, width).

        Raises:
            DataError: if nobody outlined the objects of this part.
        """
        if part not in self.regions:
            raise DataError(
                f"nobody outlined the objects in the {part} images of {self.splits.name}, so AIoU can't be computed; "
                "give boxes or masks"
            )
        regions = self.regions[part].gather(positions)
        assert isinstance(regions, Tensor)
        return regions


@dataclass(frozen=True)
class ClipData(CatalogEntry, ABC):
    """A data set for two-tower models by name; its fields are its options.

    Class attributes:
        recipe: how it is fine-tuned, fields of `holdfast.training.Training`.
        tower: name of the two-tower model that it is usually shown to.
    """

    recipe: ClassVar[Mapping[str, object]] = {}
    tower: ClassVar[str]

    @abstractmethod
    def load(self, root: Path, preprocessing: Preprocessing) -> ClipTask:
        """Read the task.

        Args:
            root: the data root.
            preprocessing: of the model that will see the images.

        Returns:
            The task.
        """


def some_of_each_group(examples: Examples, count: int, seed: int = 0) -> Tensor:
    """Positions of up to `count` random examples of every group, of every class where there are no groups."""
    groups = examples.labels if examples.groups is None else examples.groups
    chosen = []
    for group in torch.unique(groups).tolist():
        members = (groups == group).nonzero().flatten()
        order = torch.randperm(len(members), generator=torch_stream(seed, "explained", group))
        chosen.append(members[order[:count]])
    return torch.cat(chosen)


def explanation_score(
    model: TwoTowerModel, task: ClipTask, report: GroupReport, *, per_group: int | None = 60, seed: int = 0
) -> ExplanationScore:
    """AIoU on the test set: do the maps of the true class lie on the object?

    Args:
        model: a model on images; left as it was.
        task: has regions for its test images.
        report: its accuracies on the test set, which say which group is the worst.
        per_group: images of each group that are explained; None for all.
        seed: decides which.

    Returns:
        AIoU by group.
    """
    test = task.splits.test
    positions = torch.arange(len(test)) if per_group is None else some_of_each_group(test, per_group, seed)
    classifier = PromptClassifier.of(model, task.wording)
    scores = []
    for rows in torch.split(positions, 32):
        images, labels = test.gather(rows)
        assert isinstance(images, Tensor)
        scores.append(adjusted_iou(class_maps(classifier, images), labels, task.outlined("test", rows)))
    groups = test.labels if test.groups is None else test.groups
    return ExplanationScore.of(torch.cat(scores), groups[positions], report)
