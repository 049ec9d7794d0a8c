"""Tiny generated trees in the layouts of Waterbirds, CelebA, CivilComments, UrbanCars and ImageNet."""

import csv
import json
from collections.abc import Sequence
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


def write_comments(root: Path, comments: Sequence[tuple[str, str, str, tuple[str, ...]]]) -> Path:
    """CivilComments' csv, from texts with their split, toxicity and the identities they mention."""
    rows: list[list[object]] = [
        [number, text, split, toxicity, *("1.0" if name in tags else "0.2" for name in IDENTITIES)]
        for number, (text, split, toxicity, tags) in enumerate(comments)
    ]
    header = ["", "comment_text", "split", "toxicity", *IDENTITIES]
    write_csv(root / "civilcomments_v1.0/all_data_with_identities.csv", header, rows)
    return root


def write_pairs(root: Path, parts: dict[str, Sequence[tuple[str, str, str]]]) -> Path:
    """SNLI's files, from label, premise and hypothesis of each pair, by part."""
    (root / "snli_1.0").mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        lines = [json.dumps({"gold_label": g, "sentence1": a, "sentence2": b, "pairID": "x"}) for g, a, b in pairs]
        (root / f"snli_1.0/snli_1.0_{part}.jsonl").write_text("\n".join(lines) + "\n")
    return root


def write_multinli(root: Path, parts: dict[str, Sequence[tuple[str, str, str]]]) -> Path:
    """MultiNLI's files, from label, premise and hypothesis of each pair, by part."""
    (root / "multinli_1.0").mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        lines = [json.dumps({"gold_label": g, "sentence1": a, "sentence2": b, "genre": "x"}) for g, a, b in pairs]
        (root / f"multinli_1.0/multinli_1.0_{part}.jsonl").write_text("\n".join(lines) + "\n")
    return root


def write_tokenizer(folder: Path, words: Sequence[str]) -> Path:
    """A tokenizer that knows `words`, numbered from 2; 0 is padding and 1 is any other word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate(("[PAD]", "[UNK]", *words))}
    inner = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    return folder


def bird_rows(counts: dict[str, tuple[int, ...]]) -> list[list[object]]:
    """Rows of metadata.csv with the given number of examples per (y, place) in each split."""
    rows: list[list[object]] = []
    for split, cells in enumerate(counts.values()):
        for group, count in enumerate(cells):
            rows += [[0, f"{len(rows) + i:03}.png", group // 2, split, group % 2, "x.jpg"] for i in range(count)]
    return [[number, *row[1:]] for number, row in enumerate(rows)]


BIRD_HEADER = ["img_id", "img_filename", "y", "split", "place", "place_filename"]


def write_birds(folder: Path, counts: dict[str, tuple[int, ...]], side: int = 12) -> Path:
    """Waterbirds' layout: metadata.csv and images, whose brightness goes with the place."""
    rows = bird_rows(counts)
    write_csv(folder / "metadata.csv", BIRD_HEADER, rows)
    for number, row in enumerate(rows):
        write_patterned(folder / str(row[1]), side, int(str(row[2])), int(str(row[4])), number)
    return folder


def write_faces(root: Path, counts: dict[str, tuple[int, ...]], side: int = 12) -> Path:
    """CelebA's layout with the given number of faces per (blond, male) in each part."""
    rows = [
        (f"{part}-{group}-{number}.png", group // 2, group % 2, part)
        for part, cells in enumerate(counts.values())
        for group, count in enumerate(cells)
        for number in range(count)
    ]
    attributes: list[list[object]] = [[name, 2 * blond - 1, 2 * male - 1] for name, blond, male, _ in rows]
    write_csv(root / "celeba/list_attr_celeba.csv", ["image_id", "Blond_Hair", "Male"], attributes)
    partition: list[list[object]] = [[name, part] for name, _, _, part in rows]
    write_csv(root / "celeba/list_eval_partition.csv", ["image_id", "partition"], partition)
    for number, (name, blond, male, _) in enumerate(rows):
        write_patterned(root / "celeba/img_align_celeba" / name, side, blond, male, number)
    return root


CAR_PARTS = {
    "train": "bg-0.95_co_occur_obj-0.95/train",
    "validation": "bg-0.5_co_occur_obj-0.5/val",
    "test": "bg-0.5_co_occur_obj-0.5/test",
}


def write_cars(folder: Path, counts: dict[str, tuple[int, ...]], side: int = 12) -> Path:
    """UrbanCars' layout with the given number of images per (car, background, object) in each part."""
    kinds = ("urban", "country")
    for part, cells in counts.items():
        for group, count in enumerate(cells):
            car, background, thing = group // 4, group // 2 % 2, group % 2
            place = folder / CAR_PARTS[part]
            place /= f"obj-{kinds[car]}_bg-{kinds[background]}_co_occur_obj-{kinds[thing]}"
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                write_patterned(place / f"{number:03}.jpg", side, car, background + thing, number)
    return folder


def write_synsets(folder: Path, counts: dict[int, int]) -> Path:
    """ImageNet's layout: 1,000 synsets, with the given number of images in some, by class index."""
    for index in range(1000):
        (folder / f"n{index:08}").mkdir(parents=True)
        for number in range(counts.get(index, 0)):
            write_image(folder / f"n{index:08}" / f"{number}.JPEG", seed=1000 * index + number)
    return folder


def write_patterned(path: Path, side: int, label: int, attribute: int, seed: int) -> None:
    """An image whose lower half shows the class faintly and whose upper half shows the attribute clearly."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(40, size=(side, side, 3)) + 60
    pixels[: side // 2, :, 0] += 120 * attribute // 2 + 20
    pixels[side // 2 :, :, 2] += 30 * label
    Image.fromarray(pixels.astype(np.uint8)).save(path)
