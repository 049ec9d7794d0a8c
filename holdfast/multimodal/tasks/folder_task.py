"""Your own images for two-tower models: a folder with a metadata.csv, and masks of the objects where you have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from holdfast.data.readers.folder import MetadataColumns, read_folder
from holdfast.data.readers.tables import read_columns, split_codes
from holdfast.errors import ConfigError
from holdfast.multimodal.audit.outlines import mask_inputs
from holdfast.multimodal.backends.preprocessing import Preprocessing
from holdfast.multimodal.tasks.prompts import Wording
from holdfast.multimodal.tasks.task import PARTS, ClipData, ClipTask, Region


@dataclass(frozen=True)
class FolderClip(ClipData):
    """Your own images: a folder with a metadata.csv.

    Attributes:
        path: the folder.
        class_names: a name per class, in the order of the labels; prompts are filled with them.
        attribute_names: a word per value of the spurious attribute, in its order.
        columns: which column of metadata.csv says what.
        masks: a folder with a mask per image, of the same name and .png, light where the object is.
        region: what AIoU compares maps with: the smallest box around the object, or its outline.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "folder"
    summary = "your own images: a folder with metadata.csv (img_filename, y, split, place)"
    tower = "openai/clip-vit-base-patch32"
    recipe: ClassVar[Any] = {"epochs": 30, "batch_size": 128, "learning_rate": 1e-3, "weight_decay": 1e-4}

    path: Path
    class_names: tuple[str, ...] = ()
    attribute_names: tuple[str, ...] = ()
    columns: MetadataColumns = field(default_factory=MetadataColumns)
    masks: Path | None = None
    region: Region = "box"
    workers: int = 2

    def load(self, root: Path, preprocessing: Preprocessing) -> ClipTask:
        """Read metadata.csv; `root` isn't looked at."""
        if not self.class_names:
            raise ConfigError(
                "a two-tower model asks for classes by their names, and these have none; give --folder.class-names"
            )
        folder = Path(self.path).expanduser()
        splits = read_folder(
            self.name,
            folder,
            self.columns,
            preprocessing,
            class_names=self.class_names,
            attribute_names=self.attribute_names,
            workers=self.workers,
        )
        wording = Wording(self.class_names, splits.train.attribute_names if self.attribute_names else ())
        if self.masks is None:
            return ClipTask(splits, wording)
        files = part_files(folder, self.columns, Path(self.masks).expanduser())
        regions = {part: mask_inputs(paths, preprocessing, self.region, self.workers) for part, paths in files.items()}
        return ClipTask(splits, wording, regions)


def part_files(folder: Path, columns: MetadataColumns, below: Path, suffix: str = ".png") -> dict[str, Sequence[Path]]:
    """The file below another folder that belongs to each image of metadata.csv, by part."""
    table = read_columns(folder / "metadata.csv", [columns.path, columns.split])
    codes = split_codes(folder / "metadata.csv", columns.split, table[columns.split])
    return {
        part: [(below / name).with_suffix(suffix) for name in table[columns.path][codes == code]]
        for code, part in enumerate(PARTS)
    }
