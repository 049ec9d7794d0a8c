"""Waterbirds for two-tower models: the published splits, the paper's words, and the birds' outlines from CUB.

Spec 6.1. A composite lies in the frame of its CUB photograph, so CUB's segmentations outline its bird. They are a
download of their own; without them everything but AIoU works.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from holdfast.data.catalog import find
from holdfast.data.readers.folder import WATERBIRDS_COUNTS, MetadataColumns, check_group_counts, read_folder
from holdfast.multimodal.audit.outlines import mask_inputs
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.folder_task import part_files
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.multimodal.tasks.task import ClipData, ClipTask, Region

WATERBIRDS_WORDING = Wording(("landbird", "waterbird"), ("land", "water"), ("bird on land", "bird on water"))

_FOLDERS = ("waterbird_complete95_forest2water2", "waterbirds_v1.0")
_OUTLINES = ("CUB_200_2011/segmentations", "segmentations")


@dataclass(frozen=True)
class WaterbirdsClip(ClipData):
    """Birds pasted on land or water backgrounds, which agree with the bird in 95 % of training.

    Attributes:
        region: what AIoU compares maps with: the smallest box around the bird, or its outline.
        check_counts: refuse data whose group sizes aren't the published ones.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "waterbirds"
    summary = "11,788 birds on land and water backgrounds, 2 classes, 4 groups"
    files = find("waterbirds").files
    tower = "open_clip:RN50:openai"
    recipe: ClassVar[Any] = {"epochs": 300, "batch_size": 128, "learning_rate": 1e-4, "weight_decay": 1e-5}

    region: Region = "box"
    check_counts: bool = True
    workers: int = 2

    def load(self, root: Path, preprocessing: Preprocessing) -> ClipTask:
        """Read metadata.csv; segmentations are looked for in CUB_200_2011/segmentations and segmentations."""
        folder = self.locate(root, *(f"{folder}/metadata.csv" for folder in _FOLDERS)).parent
        wording, columns = WATERBIRDS_WORDING, MetadataColumns()
        splits = read_folder(
            self.name,
            folder,
            columns,
            preprocessing,
            class_names=wording.class_names,
            attribute_names=wording.spurious_words,
            workers=self.workers,
        )
        if self.check_counts:
            check_group_counts(splits, WATERBIRDS_COUNTS)
        outlines = next((root / place for place in _OUTLINES if (root / place).is_dir()), None)
        if outlines is None:
            return ClipTask(splits, wording)
        files = part_files(folder, columns, outlines)
        regions = {part: mask_inputs(paths, preprocessing, self.region, self.workers) for part, paths in files.items()}
        return ClipTask(splits, wording, regions)
