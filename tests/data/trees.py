"""Tiny generated trees in the layouts of Waterbirds, CelebA and CivilComments."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def write_image(path: Path, width: int = 12, height: int = 10, seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def bird_rows(counts: dict[str, tuple[int, ...]]) -> list[list[object]]:
    """Rows of metadata.csv with the given number of examples per (y, place) in each split."""
    rows: list[list[object]] = []
    for split, cells in enumerate(counts.values()):
        for group, count in enumerate(cells):
            rows += [[0, f"{len(rows) + i:03}.png", group // 2, split, group % 2, "x.jpg"] for i in range(count)]
    return [[number, *row[1:]] for number, row in enumerate(rows)]


BIRD_HEADER = ["img_id", "img_filename", "y", "split", "place", "place_filename"]
