"""Small made-up trees of files in the layout of the public data sets."""

import csv

import numpy as np
import torch
from PIL import Image

from holdfast.multimodal.audit.detectors import Detections


def picture(path, size=(40, 30), colour=(90, 120, 200)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def mask(path, box, size=(40, 30)):
    """White inside of `box` (left, top, right, bottom), black outside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((size[1], size[0]), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    Image.fromarray(pixels).save(path)


def metadata(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metadata.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(("img_id", "img_filename", "y", "split", "place"))
        lines.writerows((at, *row) for at, row in enumerate(rows))


def waterbirds(root, masks=True):
    """Two birds of each group in each part; the mask of a bird covers its left half."""
    rows = []
    for split in range(3):
        for label in range(2):
            for place in range(2):
                for number in range(2):
                    name = f"00{label}.Bird/bird_{split}{place}{number}.jpg"
                    rows.append((name, label, split, place))
                    picture(root / "waterbirds_v1.0" / name, colour=(200 * label, 90, 200 * place))
                    if masks:
                        mask(root / "CUB_200_2011/segmentations" / name.replace(".jpg", ".png"), (5, 0, 20, 30))
    metadata(root / "waterbirds_v1.0", rows)


def annotation(path, size, boxes):
    path.parent.mkdir(parents=True, exist_ok=True)
    objects = "".join(
        f"<object><name>x</name><bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox>"
        "</object>"
        for a, b, c, d in boxes
    )
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    path.write_text(f"<annotation>{sides}{objects}</annotation>")


def imagenet(root, synsets, train=12, test=4):
    """Every second image is red, which `RedDetector` sees; boxes cover the left half."""
    for synset in synsets:
        for part, count in (("train", train), ("val", test)):
            for number in range(count):
                name = f"{synset}_{part}_{number:03}"
                colour = (250, 10, 10) if number % 2 else (10, 10, 250)
                picture(root / "imagenet" / part / synset / f"{name}.JPEG", colour=colour)
                if part == "val":
                    annotation(root / f"imagenet/annotations/val/{name}.xml", (40, 30), [(0, 0, 20, 30)])


class RedDetector:
    """Sees its every word in images that are red, with the whole image as the box."""

    def __init__(self):
        self.asked = []

    def detect(self, images, words):
        self.asked.append((len(images), tuple(words)))
        red = (images.mean((2, 3)).argmax(1) == 0).nonzero().flatten()
        count = len(red)
        boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(count, 4)
        return Detections(red, torch.zeros(count, dtype=torch.int64), torch.full((count,), 0.5), boxes)
