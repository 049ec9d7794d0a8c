"""UrbanCars: urban or country cars, which two shortcuts give away at once (Li et al., "A Whac-A-Mole Dilemma", 2023).

The paper is https://arxiv.org/abs/2212.04825. In training, the background goes with the car in 95 % of the images, and
so does an object beside it. A method that is cured of one shortcut often leans on the other, so all combinations are
groups: class x background x object, eight in all. SPARE's published paper reports on it. The images are made from three
other data sets by its authors' program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from holdfast.data.catalog import register
from holdfast.data.examples import Splits
from holdfast.data.readers.folder import FINE_TUNED_RESNET50, PublishedImages, lazy_splits, waterbirds_reader
from holdfast.data.readers.image_tree import image_files
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError

KINDS = ("urban", "country")
ATTRIBUTES = tuple(f"{background} background, {thing} object" for background in KINDS for thing in KINDS)

#: Training images of a class by how many of its background and object fit the class: both, one, the other, none.
_CELLS = (3610, 190, 190, 10)
URBANCARS_COUNTS = {"train": (*_CELLS, *_CELLS[::-1]), "validation": (125,) * 8, "test": (125,) * 8}

_PARTS = ("bg-0.95_co_occur_obj-0.95/train", "bg-0.5_co_occur_obj-0.5/val", "bg-0.5_co_occur_obj-0.5/test")


def shortcut_gaps(accuracies: Sequence[float]) -> dict[str, float]:
    """How much accuracy is lost where a shortcut misleads: the benchmark's own scores.

    Args:
        accuracies: of the eight groups, in the data set's order.

    Returns:
        ``in_distribution``, the accuracy weighed by the groups' share of training, and what is gained relative to it
        (a loss is negative) where the ``background``, the ``object`` or ``both`` don't fit the class.

    Raises:
        DataError: if there aren't eight accuracies.

    Example:
        >>> gaps = shortcut_gaps([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0])  # the background decides
        >>> {name: round(gap, 2) for name, gap in gaps.items()}
        {'in_distribution': 0.95, 'background': -0.95, 'object': 0.05, 'both': -0.95}
    """
    if len(accuracies) != 8:
        raise DataError(f"UrbanCars has eight groups and {len(accuracies)} accuracies were given; give one per group")
    urban, country = accuracies[:4], accuracies[:3:-1]
    both_fit, background_fits, object_fits, none_fits = ((a + b) / 2 for a, b in zip(urban, country, strict=True))
    shares = np.array(_CELLS) / sum(_CELLS)
    usual = float(shares @ np.array([both_fit, background_fits, object_fits, none_fits]))
    return {
        "in_distribution": usual,
        "background": object_fits - usual,
        "object": background_fits - usual,
        "both": none_fits - usual,
    }


@register
@dataclass(frozen=True)
class UrbanCars(PublishedImages):
    """Urban and country cars, whose background and neighbouring object agree with them in 95 % of training.

    Attributes:
        size: side of the square that the model gets.
        check_counts: refuse data whose group sizes aren't the published ones.
        workers: threads that decode images; 0 decodes in the main thread.
    """

    name = "urbancars"
    summary = "10,000 urban and country cars with two shortcuts, background and object, 2 classes, 8 groups"
    files = tuple(RemoteFile(f"urbancars/{part}", also=(f"urbancars_images/{part}",)) for part in _PARTS)
    by_hand = (
        "make UrbanCars with the program at https://github.com/facebookresearch/Whac-A-Mole and put the folders "
        "bg-0.95_co_occur_obj-0.95 and bg-0.5_co_occur_obj-0.5 into urbancars/"
    )
    recipe: ClassVar[Any] = FINE_TUNED_RESNET50
    published = URBANCARS_COUNTS

    def read(self, root: Path) -> Splits:
        """List the images; they are opened when they are gathered."""
        images: list[Path] = []
        cells: list[tuple[int, int, int]] = []
        for code, file in enumerate(self.files):
            part = self.locate(root, file.path, *file.also)
            for group, (car, background, thing) in enumerate(product(KINDS, repeat=3)):
                files = image_files(part / f"obj-{car}_bg-{background}_co_occur_obj-{thing}")
                images += files
                cells += [(code, *divmod(group, len(ATTRIBUTES)))] * len(files)
        codes, labels, attributes = np.array(cells, np.int64).reshape(-1, 3).T
        return lazy_splits(
            self.name,
            images,
            waterbirds_reader(self.size),
            labels=labels,
            attributes=attributes,
            codes=codes,
            class_names=KINDS,
            attribute_names=ATTRIBUTES,
            workers=self.workers,
        )
