"""Thousands of damaged inputs and configurations, each of which must end in success or in one of our sentences.

``python -m tests.soak.damage --cases 2400`` runs them all and writes results/soak/inputs.log; a sample runs in
``make test`` and others in ``make soak`` (test_inputs.py). A case has a kind and a seed, and these two repeat it:
``python -m tests.soak.damage --only csv --seed 123``.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import torch
from PIL import Image

from holdfast.cli.main import main as holdfast
from holdfast.data import read
from holdfast.data.own.options import ReadingOptions
from holdfast.data.own.schema import Schema
from holdfast.data.readers.idx import read_idx
from holdfast.errors import HoldfastError
from holdfast.federated import Rounds
from holdfast.training.settings import Training

LOG = Path(__file__).parents[2] / "results" / "soak" / "inputs.log"
SECONDS, PATIENCE = 20, 120  # of processor and of clock time, after which a case counts as hanging
LONGEST = 1_500  # characters of a message
Dice = random.Random
Attempt = Callable[[], object]


# ------------------------------------------------------------------------------------------------------- odd values

ODD_CELLS = [
    "", " ", "NaN", "nan", "inf", "-inf", "Infinity", "1e999", "-1e400", "1e-400", "0x10", "1_000", "1,5", "١٢٣",
    "²", "½",
    "None", "null", "NULL", "?", "none", "true", "FALSE", "2026-02-30", "2026-01-01", "2026-01-01T00:00:00+05:00",
    "12:00",
    "9" * 25, "-" + "9" * 400, "9" * 400 + ".5", "a" * 5_000, '"', '""', '"unclosed', "a\nb", "a\r\nb", ";", "\t", "|",
    "\x00", "\x1b[31m", "\u202e", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "ﬀ", "İ",
    "../../etc/passwd", "/etc/passwd", "file://x", "=1+1", "-0", "+1", "1.0", "1e3", "0.1", "-3", "train", "test", "2",
]  # fmt: skip
ODD_NAMES = ["", " ", "label", "none", "None", "a", "a:4", ":", "Ä", "x" * 3_000, "a\nb", "\x00", "--label", "id",
             "split",
             "image", "text", "0", "[bold]", "group", "groups", "sex"]  # fmt: skip
ODD_OPTIONS = ["nan", "inf", "-inf", "1e400", "-1", "0", "1", "2.5", "1e-400", "", " ", "ü" * 40, "x" * 20_000,
               "9" * 30,
               "-" + "9" * 30, "None", "none", "true", "[1, 2]", "{}", "../..", "/", "\x1b[0m", "--", "--help-me",
               "a b",
               "0x1f", "\u0661", "1_0", "🙂", "\n", "a:4", "sex:0", "colour:3", "a:99999999999999999999", "yes",
               "cuda:9", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808"]  # fmt: skip


def damaged(dice: Dice, content: bytes) -> bytes:
    """Some bytes changed, inserted, cut out, repeated, or cut off, at several places."""
    found = bytearray(content)
    for _ in range(dice.randint(1, 5)):
        place = dice.randint(0, len(found))
        kind = dice.choice(["change", "change", "insert", "cut", "end", "repeat", "flip", "word"])
        some = dice.randbytes(dice.randint(1, 12))
        if kind == "change":
            found[place : place + len(some)] = some
        elif kind == "insert":
            found[place:place] = some
        elif kind == "cut":
            del found[place : place + dice.choice([1, 4, 64])]
        elif kind == "end":
            del found[dice.randint(len(found) // 2, len(found)) :]
        elif kind == "repeat":
            found[place:place] = found[place : place + 64]
        elif kind == "word":
            found[place:place] = dice.choice(ODD_CELLS).encode("utf-8", "surrogatepass")
        elif found:
            found[min(place, len(found) - 1)] ^= 1 << dice.randint(0, 7)
    return bytes(found)


def plain_rows(dice: Dice, n: int) -> dict[str, list[Any]]:
    """A small table that can be learned from."""
    labels = [dice.choice(["yes", "no"]) for _ in range(n)]
    return {
        "a": [round(dice.gauss(1.0 * (label == "yes"), 1), 3) for label in labels],
        "b": [dice.randint(0, 9) for _ in labels],
        "colour": [dice.choice(["red", "green", "blue"]) for _ in labels],
        "sex": [dice.choice(["f", "m"]) for _ in labels],
        "label": labels,
    }


def read_and_use(place: Path, **options: Any) -> Attempt:
    """Read as a user's own data; what is accepted must be usable."""

    def attempt() -> None:
        splits = read(place, **options)
        for part in (splits.train, splits.validation, splits.test):
            inputs, labels = part.gather(torch.arange(min(len(part), 8)))
            for values in inputs.values() if isinstance(inputs, dict) else [inputs]:
                assert values.dtype != torch.float64 and bool(torch.isfinite(values.float()).all()), "not finite"
            assert bool((labels >= 0).all()) and int(labels.max()) < part.n_classes
        assert all(len(note) < LONGEST for note in splits.notes), "a note is too long"
        assert splits.schema is not None
        again = Schema.from_json(json.loads(json.dumps(splits.schema.to_json())))
        assert len(again.read(str(place)).examples) == len(splits.train) + len(splits.validation) + len(splits.test)

    return attempt


def command(*words: str | Path) -> Attempt:
    return lambda: holdfast([str(word) for word in words])


def fit(place: Path, out: Path, *words: str) -> Attempt:
    return command("fit", "--data", place, "--epochs", "1", "--out", out, *words)


def used(dice: Dice, place: Path, folder: Path, **options: Any) -> Attempt:
    """Mostly by reading alone, sometimes by the command."""
    if dice.random() < 0.85 or options:
        return read_and_use(place, **options)
    return fit(place, folder / "run")


def some_options(dice: Dice, columns: list[str]) -> dict[str, Any]:
    """What a user might say about columns, right or wrong."""
    if dice.random() < 0.5 or not columns:
        return {}
    column = dice.choice([*columns, dice.choice(ODD_NAMES)])
    role = dice.choice(["label", "attribute", "text", "image", "features", "client", "split", "time", "id"])
    if role == "attribute":
        column = dice.choice([column, f"{column}:{dice.choice([0, 1, 2, 4, 64, 65, 10**6, '', 'x'])}"])
        return {role: [column, *dice.sample(columns, dice.randint(0, min(2, len(columns))))]}
    return {role: [column] if role == "features" else column}


# -------------------------------------------------------------------------------------------------------------- tables


#: Numbers as people write them.
WRITTEN = ("{},5", "1,{}", "{}%", "${}.00", "1'{}", "{}.000,5", "-{},", "0,{}e3")


def csv_bytes(dice: Dice) -> bytes:
    rows = plain_rows(dice, dice.choice([0, 1, 3, 12, 60, 60, 60, 60, 60]))
    separator = dice.choice([",", ",", ";", "\t", "|"])
    names, values = list(rows), list(map(list, rows.values()))
    for _ in range(dice.randint(0, 3)):
        kind = dice.choice(["cell", "column", "name", "ragged", "written"])
        column = dice.randrange(len(names))
        if kind == "name":
            names[column] = dice.choice(ODD_NAMES)
        elif kind == "column":
            odd = dice.choice(ODD_CELLS)
            values[column] = [odd if dice.random() < 0.7 else dice.choice(ODD_CELLS) for _ in values[column]]
        elif kind == "written":
            values[column] = [dice.choice(WRITTEN).format(dice.randrange(1_000)) for _ in values[column]]
        elif kind == "cell" and values[column]:
            values[column][dice.randrange(len(values[column]))] = dice.choice(ODD_CELLS)
    lines = [separator.join(names), *(separator.join(map(str, row)) for row in zip(*values, strict=True))]
    if dice.random() < 0.1:
        lines[dice.randrange(len(lines))] += separator + "1"
    text = dice.choice(["\n", "\n", "\r\n", "\r"]).join(lines) + dice.choice(["\n", ""])
    content = text.encode(dice.choice(["utf-8"] * 9 + ["utf-8-sig", "utf-16", "latin-1"]), "replace")
    return damaged(dice, content) if dice.random() < 0.3 else content


def a_csv(dice: Dice, folder: Path) -> Attempt:
    content = csv_bytes(dice)
    if dice.random() < 0.1:
        suffix, codec = dice.choice([("gz", "gzip"), ("bz2", "bz2"), ("zst", "zstd"), ("lz4", "lz4")])
        path, sink = folder / f"table.csv.{suffix}", pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(content)
        content = sink.getvalue().to_pybytes()
        path.write_bytes(damaged(dice, content) if dice.random() < 0.7 else content)
    else:
        path = folder / dice.choice(["table.csv", "table.csv", "table.tsv"])
        path.write_bytes(content)
    return used(dice, path, folder, **some_options(dice, ["a", "b", "colour", "sex", "label"]))


def odd_column(dice: Dice, n: int) -> pa.Array:
    """A column of any of Arrow's types, some of its values missing or odd."""
    day, now = date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone.utc)
    makers: list[Callable[[], tuple[list[Any], Any]]] = [
        lambda: ([dice.gauss(0, 1) for _ in range(n)], pa.float64()),
        lambda: ([dice.choice([float("nan"), float("inf"), 1e300, -1e308, 0.0]) for _ in range(n)], pa.float64()),
        lambda: ([dice.gauss(0, 1) for _ in range(n)], pa.float32()),
        lambda: (np.array([dice.gauss(0, 1) for _ in range(n)], np.float16).tolist(), pa.float16()),
        lambda: ([dice.choice([0, 1]) for _ in range(n)], pa.int8()),
        lambda: ([dice.choice([0, 2**64 - 1]) for _ in range(n)], pa.uint64()),
        lambda: ([dice.choice([-(2**63), 2**63 - 1, 0]) for _ in range(n)], pa.int64()),
        lambda: ([dice.random() < 0.5 for _ in range(n)], pa.bool_()),
        lambda: ([dice.choice(ODD_CELLS) for _ in range(n)], pa.string()),
        lambda: ([dice.choice("xyz") for _ in range(n)], pa.large_string()),
        lambda: ([dice.choice("xyz") for _ in range(n)], pa.string_view()),
        lambda: ([dice.choice("xyz") for _ in range(n)], pa.dictionary(pa.int8(), pa.string())),
        lambda: ([dice.randint(0, 3) for _ in range(n)], pa.dictionary(pa.int16(), pa.int64())),
        lambda: ([dice.randbytes(4) for _ in range(n)], pa.binary()),
        lambda: ([dice.randbytes(4) for _ in range(n)], pa.binary(4)),
        lambda: ([Decimal(dice.randint(0, 9)) / 4 for _ in range(n)], pa.decimal128(20, 2)),
        lambda: ([Decimal(10) ** 60 for _ in range(n)], pa.decimal256(70, 2)),
        lambda: ([day + timedelta(days=dice.randint(0, 900)) for _ in range(n)], pa.date32()),
        lambda: ([day + timedelta(days=dice.randint(0, 900)) for _ in range(n)], pa.date64()),
        lambda: ([now + timedelta(hours=dice.randint(0, 900)) for _ in range(n)], pa.timestamp("ns", "Europe/Berlin")),
        lambda: ([now.replace(tzinfo=None) for _ in range(n)], pa.timestamp("s")),
        lambda: ([dice.choice([-(2**62), 2**62]) for _ in range(n)], pa.timestamp("s")),
        lambda: ([timedelta(seconds=dice.randint(0, 9)) for _ in range(n)], pa.duration("ms")),
        lambda: ([dice.randint(0, 80_000) for _ in range(n)], pa.time32("s")),
        lambda: ([dice.randint(0, 80_000) for _ in range(n)], pa.time64("us")),
        lambda: ([[dice.choice("xyz")] * dice.randint(0, 3) for _ in range(n)], pa.list_(pa.string())),
        lambda: ([[1.0, dice.random()] for _ in range(n)], pa.list_(pa.float32(), 2)),
        lambda: ([[dice.randint(0, 2)] for _ in range(n)], pa.large_list(pa.int64())),
        lambda: ([[None, "a"] for _ in range(n)], pa.list_(pa.string())),
        lambda: ([[["a"]] for _ in range(n)], pa.list_(pa.list_(pa.string()))),
        lambda: ([{"x": 1} for _ in range(n)], pa.struct([("x", pa.int64())])),
        lambda: ([{"bytes": dice.randbytes(9), "path": None} for _ in range(n)],
                 pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        lambda: ([[("k", 1)] for _ in range(n)], pa.map_(pa.string(), pa.int64())),
        lambda: ([None] * n, pa.null()),
        lambda: ([None] * n, pa.string()),
    ]  # fmt: skip
    values, kind = dice.choice(makers)()
    if dice.random() < 0.3:
        values = [None if dice.random() < 0.3 else value for value in values]
    return pa.array(values, kind)


def odd_table(dice: Dice) -> pa.Table:
    n = dice.choice([0, 1, 3, 12, 60, 60, 60, 60, 60])
    columns: dict[str, Any] = dict(plain_rows(dice, n))
    for _ in range(dice.randint(1, 3)):
        columns[dice.choice([*columns, *ODD_NAMES, "when", "tags"])] = odd_column(dice, n)
    names = list(columns)
    arrays = [pa.array(column) if isinstance(column, list) else column for column in columns.values()]
    if dice.random() < 0.05:
        names[0] = names[-1]
    return pa.Table.from_arrays(arrays, names)


def written(dice: Dice, path: Path, write: Callable[[Path], None], rate: float = 0.3) -> Path:
    with contextlib.suppress(pa.ArrowException):  # some types have no place in a format
        write(path)
        if dice.random() < rate:
            path.write_bytes(damaged(dice, path.read_bytes()))
        return path
    path.write_bytes(dice.randbytes(30))
    return path


def a_parquet(dice: Dice, folder: Path) -> Attempt:
    table = odd_table(dice)
    path = written(dice, folder / "table.parquet", lambda path: pa.parquet.write_table(table, path))
    return used(dice, path, folder, **some_options(dice, table.column_names))


def an_arrow(dice: Dice, folder: Path) -> Attempt:
    table = odd_table(dice)

    def write(path: Path) -> None:
        kind = dice.choice(["file", "stream", "feather"])
        if kind == "feather":
            pa.feather.write_feather(table, path, compression=dice.choice(["lz4", "zstd", "uncompressed"]))
            return
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as stream, new(stream, table.schema) as writer:
            writer.write_table(table)

    path = written(dice, folder / dice.choice(["table.arrow", "table.feather"]), write)
    return used(dice, path, folder, **some_options(dice, table.column_names))


def any_json(dice: Dice, depth: int = 2) -> Any:
    kind = dice.randrange(9 if depth else 6)
    if kind < 6:
        return dice.choice([None, True, 1, -2.5, 10**30, "word", dice.choice(ODD_CELLS)])
    if kind < 8:
        return [any_json(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    return {dice.choice(["x", "y", ""]): any_json(dice, depth - 1) for _ in range(dice.randint(0, 3))}


def a_jsonl(dice: Dice, folder: Path) -> Attempt:
    rows = plain_rows(dice, dice.choice([0, 3, 40, 40, 40]))
    lines = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    column = dice.choice(["a", "label", "sex", "new", "text"])
    rate = dice.choice([0.0, 0.0, 0.03, 1.0])
    for line in lines:
        if dice.random() < rate:
            line[column] = any_json(dice)
        if dice.random() < 0.02:
            line.pop("b")
    text = "\n".join(json.dumps(line, ensure_ascii=dice.random() < 0.5) for line in lines)
    if dice.random() < 0.3:
        text = json.dumps([*lines, *dice.choice([[], [], [any_json(dice)]])])
    content = text.encode("utf-8", "replace")
    path = folder / dice.choice(["rows.jsonl", "rows.json", "rows.ndjson"])
    path.write_bytes(damaged(dice, content) if dice.random() < 0.4 else content)
    return used(dice, path, folder, **some_options(dice, list(rows)))


def texts(dice: Dice, folder: Path) -> Attempt:
    words = ["good", "bad", "film", "", "\x00", "ü" * 50, "🙂", "\u2028", "a" * 3_000, "،", "don't"]
    rows = [
        {"review": " ".join(dice.choices(words, k=dice.randint(0, 30))), "label": dice.choice(["pos", "neg"])}
        for _ in range(dice.choice([4, 30]))
    ]  # fmt: skip
    for row in rows:
        if dice.random() < 0.01:
            row["review"] = dice.choice([any_json(dice), "\ud800"])
    path = folder / "texts.jsonl"
    path.write_bytes("\n".join(map(json.dumps, rows)).encode())
    return used(dice, path, folder, **dice.choice([{}, {"text": "review"}, {"max_tokens": dice.choice([1, 2**20])}]))


# ------------------------------------------------------------------------------------------------------------- arrays


def odd_array(dice: Dice, n: int) -> Any:
    shape = dice.choice(
        [(n,), (n, 3), (n, 2, 2), (n, 8, 8, 3), (n, 3, 8, 8), (), (0,), (n, 0), (n + 1, 3), (n, 1, 1, 1, 1)]
    )
    values: Any = np.random.default_rng(dice.randrange(1 << 30)).normal(size=shape)
    kind = dice.choice(["f2", "f4", "f8", "i1", "i8", "u1", "u8", "?", "c8", "U3", "S3", "M8[D]", "O", "V4", "nan",
                        "inf",
                        "big", "struct", ">f4", "g"])  # fmt: skip
    if kind in ("nan", "inf", "big"):
        return np.where(np.arange(values.size).reshape(shape) == 0, {"big": 1e300}.get(kind) or float(kind), values)
    if kind == "O":
        return np.array([object.__name__] * n, object)
    if kind == "struct":
        return np.zeros(n, [("x", "f4"), ("y", "i4")])
    return np.zeros(shape, kind) if kind in ("V4", "M8[D]") else values.astype(kind)


def an_npz(dice: Dice, folder: Path) -> Attempt:
    n = dice.choice([1, 3, 30, 30, 30])
    arrays: dict[str, Any] = {
        dice.choice(["inputs", "x", "X", "images"]): np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32),
        "labels": np.arange(n) % 2,
        "attributes": np.arange(n) % 3,
    }
    for _ in range(dice.randint(0, 2)):
        arrays[dice.choice([*arrays, "groups", "split", "y", "odd", "a/b", "x" * 200])] = odd_array(dice, n)
    if dice.random() < 0.2:
        arrays = {dice.choice([f"{name}_{part}", f"{part}_{name}"]): array for name, array in arrays.items()
                  for part in dice.choice([("train", "test"), ("train", "val", "test"), ("train", "odd")])}  # fmt: skip
    path = folder / "data.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (np.savez_compressed if dice.random() < 0.3 else np.savez)(path, **arrays)
    if dice.random() < 0.4:
        path.write_bytes(damaged(dice, path.read_bytes()))
    if dice.random() < 0.3:
        return command("fit", "--data", "npz", "--npz.path", path, "--epochs", "1", "--out", folder / "run")
    return used(dice, path, folder, **some_options(dice, list(arrays)[1:]))


def an_idx(dice: Dice, folder: Path) -> Attempt:
    content = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, *range(8)])
    path = folder / "digits.gz"
    path.write_bytes(dice.choice([lambda: gzip.compress(damaged(dice, content)),
                                  lambda: damaged(dice, gzip.compress(content))])())  # fmt: skip
    return lambda: read_idx(path, dice.choice([1, 3]))


# ------------------------------------------------------------------------------------------------------------- images

MODES = ["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "LA", "PA", "I;16"]
SUFFIXES = {".png": "PNG", ".jpg": "JPEG", ".tif": "TIFF", ".bmp": "BMP", ".gif": "GIF", ".webp": "WEBP", ".ppm": "PPM"}


def odd_image(dice: Dice, path: Path) -> None:
    """An image of any mode and format, perhaps damaged, perhaps under a wrong suffix."""
    size = dice.choice([(8, 8), (8, 8), (1, 1), (1, 300), (40, 9)])
    for _ in range(20):
        mode = dice.choice(MODES)
        suffix = dice.choice(list(SUFFIXES))
        image = Image.new(mode, size)
        if mode in ("I", "F"):
            scale = dice.choice([1, 255, 70_000, -5, float("nan") if mode == "F" else 0])
            image = Image.fromarray(
                (np.ones((size[1], size[0])) * scale).astype(np.int32 if mode == "I" else np.float32)
            )
        buffer = io.BytesIO()
        with contextlib.suppress(Exception):  # no format has a place for every mode
            image.save(buffer, SUFFIXES[suffix])
            content = buffer.getvalue()
            break
    else:
        content = b"none"
    path.write_bytes(damaged(dice, content) if dice.random() < 0.5 else content)


def good_image(dice: Dice, path: Path) -> None:
    Image.fromarray(np.random.default_rng(dice.randrange(99)).integers(0, 255, (8, 8, 3), np.uint8)).save(path)


def class_folders(dice: Dice, folder: Path) -> Attempt:
    root = folder / "photos"
    parts = dice.choice([[""], [""], ["train", "test"], ["train", "val", "test"], ["train", "other"]])
    names = dice.choice(
        [["cat", "dog"], ["cat", "dog"], ["cat", "dog"], ["cat"], ["cat", "dog", "Ö [b]"], ["0", "1"], ["train", "dog"]]
    )
    for part in parts:
        for name in names:
            (root / part / name).mkdir(parents=True, exist_ok=True)
            for number in range(dice.choice([4] * 12 + [0, 2])):
                good_image(dice, root / part / name / f"{number}.png")
    places = [path for path in root.rglob("*") if path.is_dir()]
    for _ in range(dice.randint(0, 2)):
        with contextlib.suppress(OSError):
            spoil_folder(dice, dice.choice([root, *places]), root)
    root.mkdir(exist_ok=True)
    return used(dice, root, folder)


def spoil_folder(dice: Dice, place: Path, root: Path) -> None:
    """Put something into a folder that does not belong there."""
    path = place / f"odd-{dice.randrange(99)}{dice.choice(list(SUFFIXES))}"
    spoilers: list[Callable[[], object]] = [
        lambda: odd_image(dice, path),
        lambda: odd_image(dice, path),
        lambda: path.symlink_to(dice.choice([root / "nowhere", Path("/etc/hostname")])),
        lambda: (place / "linked").symlink_to(root / "nowhere"),
        lambda: (place / "loop").symlink_to(root),
        lambda: (place / "readme.txt").write_text("x"),
        path.touch,
        path.mkdir,
        lambda: (place / "._0.png").write_bytes(b"x"),
        lambda: (place / "list.csv").write_bytes(csv_bytes(dice)),
    ]
    dice.choice(spoilers)()


def metadata(dice: Dice, folder: Path) -> Attempt:
    root = folder / "photos"
    (root / "images").mkdir(parents=True)
    names = [f"images/{number}.png" for number in range(dice.choice([2, 12, 12, 12]))]
    for name in names:
        (odd_image if dice.random() < 0.03 else good_image)(dice, root / name)
    odd = ["../x.png", "/etc/passwd", "images/missing.png", "", "images", ".", "images/../images/0.png", "C:\\x.png",
           "images//0.png", "http://x/y.png", "\x00.png", "~/x.png", "images/0.png\n", "x" * 5000 + ".png"]  # fmt: skip
    rows = {
        dice.choice(["image", "file_name", "photo", "img_filename"]): [
            dice.choice(odd) if dice.random() < 0.02 else name for name in names
        ],
        "label": [dice.choice(["cat", "dog"]) for _ in names],
        "place": [dice.choice(["land", "water"]) for _ in names],
    }
    table = pa.table(rows)
    if dice.random() < 0.5:
        written(dice, root / "metadata.parquet", lambda path: pa.parquet.write_table(table, path), 0.2)
    else:
        written(dice, root / "metadata.csv", lambda path: pa.csv.write_csv(table, path), 0.2)
    return used(dice, root, folder, **some_options(dice, table.column_names))


def saved_sets(dice: Dice, folder: Path) -> Attempt:
    import datasets

    rows = plain_rows(dice, 30)
    part = datasets.Dataset.from_dict(rows).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    root = folder / "saved"
    with contextlib.redirect_stderr(io.StringIO()):
        (datasets.DatasetDict({"train": part, "test": part}) if dice.random() < 0.5 else part).save_to_disk(str(root))
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in dice.sample(files, min(len(files), dice.randint(0, 2))):
        if dice.random() < 0.2:
            path.unlink()
        else:
            path.write_bytes(damaged(dice, path.read_bytes()))
    return used(dice, root, folder)


# ------------------------------------------------------------------------------------------- configurations and options


def small_csv(folder: Path) -> Path:
    rows = plain_rows(Dice(1), 40)
    path = folder / "wards.csv"
    path.write_text("\n".join([",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]))
    return path


def a_yaml(dice: Dice, folder: Path) -> Attempt:
    data = small_csv(folder)
    base = f"data: {data}\nlearning_rate: 0.01\nlabel: label\nattribute: [sex]\nmethod: spare\nspare:\n  k_max: 2\n"
    value = dice.choice([
        ".nan", ".inf", "-.inf", "1e400", "-1", "9" * 400, "0x" + "f" * 300, "2026-01-01", "2026-01-01 10:00:00",
        "!!binary aGk=",
        "!!set {a, b}", "!!python/object/apply:os.system ['true']", "!!python/name:os.system", "&x [*x]", "&x {a: *x}",
        "&x {<<: *x}", "null", "~", "[]", "{}", "[[1]]", "{a: {b: {c: 1}}}", "yes", "on", "'" + "a" * 9_000 + "'",
        "!!omap [a: 1]",
        "!!float x", "!!int x", "!!timestamp x", "[1, [2, [3]]]", "? [a, b]\n: 1", "|\n  text\n  more",
        "\"\\ud800\"", "1:30:00",
        "190:20:30", "0b" + "1" * 100, "!!pairs [a: 1]", "*unknown", "\"\\x00\"", "-.INF", "0o777",
        "!<tag:yaml.org,2002:str> x",
        "[" * 60 + "]" * 60, "[" * 3_000 + "]" * 3_000, "{a: " * 500 + "1" + "}" * 500,
    ])  # fmt: skip
    bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a]\n" + "".join(
        f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, dice.choice([4, 9]))
    )
    key = dice.choice(["epochs", "learning_rate", "seed", "label", "attribute", "method", "spare", "spare.k_max",
                       "model",
                       "milestones", "task", "test_share", "image_size", "1", "null", "? [1]\n", "", "data", "config",
                       "folder", "<<", "groups", "preset", "optimizer", "nesterov", "batch_size"])  # fmt: skip
    text = dice.choice([
        f"{base}{key}: {value}\n", f"{base}{key}: {value}\n", f"{key}: {value}\n{base}", value, f"{base}{bomb}",
        f"{bomb}epochs: *x3\n", f"{base}{base}", base.replace("k_max: 2", f"k_max: {value}"),
        f"--- {value}\n--- {value}\n",
        f"%YAML 9.9\n---\n{base}", base.replace("\n", "\n\t"), "- a\n- b\n", "", "# nothing\n",
    ])  # fmt: skip
    content = text.encode("utf-8", "surrogatepass")
    path = folder / "run.yaml"
    path.write_bytes(damaged(dice, content) if dice.random() < 0.3 else content)
    return command("fit", "--config", path, "--epochs", "1", "--out", folder / "run")


def options_of(kinds: list[type], without: set[str]) -> list[str]:
    return [
        f"--{field.name.replace('_', '-')}" for kind in kinds for field in fields(kind) if field.name not in without
    ]


FIT = [
    *options_of([Training, ReadingOptions], {"threads", "checkpoint_seconds"}),
    "--data", "--method", "--groups", "--preset", "--model", "--weights", "--track", "--task", "--resume", "--config",
]  # fmt: skip
FEDERATE = [
    *options_of([Rounds], {"rounds", "workers", "executor", "checkpoint_seconds"}),
    "--data", "--model", "--weights", "--objective", "--aggregate", "--attack", "--malicious", "--personalize",
    "--resume",
    "--digits-clients.clients", "--digits-clients.classes-per-client", "--ditto.lambda", "--ditto.candidates",
    "--engine",
]  # fmt: skip
LONG = {"--epochs", "--epoch-size", "--local-steps", "--local-epochs"}  # a huge number of these is work, not a mistake


def an_option(dice: Dice, folder: Path) -> Attempt:
    name = dice.choice(FIT)
    value = dice.choice([odd for odd in ODD_OPTIONS if name not in LONG or not odd.isdecimal() or len(odd) < 2])
    words = [name, value] if dice.random() < 0.7 else [f"{name}={value}"]
    return fit(small_csv(folder), folder / "run", *words)


def a_method_option(dice: Dice, folder: Path) -> Attempt:
    from holdfast.methods import METHODS

    method = dice.choice(["group-dro", "cvar", "jtt", "lff", "spare", "crest", "craig", "gradmatch", "el2n", "pde",
                          "dp-sgd",
                          "eiil", "group-subsampled", "epic", "deep-knn", "dfr-val", "class-balanced",
                          "ssa"])  # fmt: skip
    options = [field for field in fields(METHODS[method]) if field.init and not field.name.startswith("_")]
    odd = [value for value in ODD_OPTIONS if not value.isdecimal() or len(value) < 2]
    words = []
    if options:
        field = dice.choice(options)
        words = [f"--{method}.{field.name.rstrip('_').replace('_', '-')}", dice.choice(odd)]
    return fit(small_csv(folder), folder / "run", "--method", method, *words)


def a_federation_option(dice: Dice, folder: Path) -> Attempt:
    name = dice.choice(FEDERATE)
    value = dice.choice([odd for odd in ODD_OPTIONS if name not in LONG or not odd.isdecimal() or len(odd) < 2])
    return command("federate", "--rounds", "1", "--executor", "batched", "--cohort", "2",
                   "--digits-clients.clients", "5",
                   "--out", folder / "run", name, value)  # fmt: skip


def a_schema(dice: Dice, folder: Path) -> Attempt:
    data = small_csv(folder)
    schema = read(data).schema
    assert schema is not None
    tree = schema.to_json()
    for _ in range(dice.randint(0, 3)):
        here: Any = tree
        while isinstance(here, (dict, list, tuple)) and here:
            key = dice.choice(list(here) if isinstance(here, dict) else range(len(here)))
            if isinstance(here, tuple):
                break
            if not isinstance(here[key], (dict, list)) or dice.random() < 0.3:
                here[key] = any_json(dice)
                break
            here = here[key]
    content = json.dumps(tree).encode()
    path = folder / "schema.json"
    path.write_bytes(damaged(dice, content) if dice.random() < 0.5 else content)
    return lambda: Schema.load(path).read(str(data)).examples.gather(torch.arange(3))


def a_place(dice: Dice, folder: Path) -> Attempt:
    """What is no file that anybody can read, or lies in an odd folder."""
    kind = dice.choice(["pipe", "device", "pickle", "empty folder", "mixed", "forbidden", "name", "tables", "suffix"])
    place = folder / "place"
    if kind == "pipe":
        place = folder / dice.choice(["table.csv", "table.parquet", "data.npz", "x.arrow"])
        os.mkfifo(place)
    elif kind == "device":
        place = dice.choice([Path("/dev/null"), Path("/dev/zero"), Path("/proc"), Path("/")])
    elif kind == "pickle":
        place = (
            folder
            / f"data{dice.choice(['.pkl', '.pt', '.npy', '.xlsx', '.zip', '.csv.zip', '.gz', '', '.txt', '.h5'])}"
        )
        place.write_bytes(dice.randbytes(40))
    elif kind == "empty folder":
        place.mkdir()
    elif kind == "forbidden":
        place = small_csv(folder)
        place.chmod(0)
    elif kind == "name":
        place = Path(
            dice.choice(["", "~nobody/x", "hf:", "a" * 5_000, "x\x00y", "file:///x", "[red]", "нет", "hf:../..:::"])
        )
        return command("fit", "--data", str(place), "--epochs", "1", "--out", folder / "run")
    elif kind == "suffix":
        place = folder / dice.choice(["x.parquet", "x.npz", "x.arrow", "x.csv", "x.jsonl", "x.csv.gz"])
        place.write_bytes(
            dice.choice([b"", b"\n", b"PK\x03\x04", b"PAR1", b"ARROW1", b"{}", b"[]", b"\x1f\x8b", csv_bytes(dice)])
        )
    else:
        place.mkdir()
        for name in dice.sample(
            ["train.csv", "test.csv", "val.parquet", "other.csv", "data.jsonl", "x.npz", "README.md"], 3
        ):
            path = place / name
            if name.endswith("parquet"):
                written(dice, path, lambda path: pa.parquet.write_table(odd_table(dice), path))
            else:
                path.write_bytes(csv_bytes(dice))
    return used(dice, place, folder)


KINDS: dict[str, Callable[[Dice, Path], Attempt]] = {
    "csv": a_csv, "parquet": a_parquet, "arrow": an_arrow, "jsonl": a_jsonl, "texts": texts, "npz": an_npz,
    "idx": an_idx,
    "class folders": class_folders, "metadata": metadata, "saved sets": saved_sets, "yaml": a_yaml, "option": an_option,
    "method option": a_method_option, "federation option": a_federation_option, "schema": a_schema, "place": a_place,
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ running


class HangError(Exception):
    """A case took too long."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    Attributes:
        kind: what was damaged.
        seed: repeats it.
        result: done, refused, or failed.
        about: the sentence, or the traceback of a failure.
    """

    kind: str
    seed: int
    result: str
    about: str = ""


def run_case(kind: str, seed: int, folder: Path) -> Outcome:
    """Make a damaged input and give it to the library, below `folder`, which must be empty."""
    dice = Dice(f"{kind} {seed}")
    output, errors = io.StringIO(), io.StringIO()
    try:
        attempt = KINDS[kind](dice, folder)
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            limited(),
        ):
            warnings.simplefilter("ignore")
            code = attempt()
        if isinstance(code, int) and code == 2:
            words = " ".join(errors.getvalue().split()).removeprefix("holdfast: ")
            return judged(kind, seed, words)
        if isinstance(code, int) and code != 0:
            return Outcome(kind, seed, "failed", f"exit code {code}: {errors.getvalue()[-500:]}")
        return Outcome(kind, seed, "done")
    except HoldfastError as error:
        return judged(kind, seed, str(error))
    except SystemExit as error:  # the parser's own way to refuse, or to show its help
        return Outcome(kind, seed, "done" if error.code == 0 else "refused" if error.code == 2 else "failed", "parser")
    except BaseException:
        return Outcome(kind, seed, "failed", traceback.format_exc())


def judged(kind: str, seed: int, sentence: str) -> Outcome:
    """A refusal must be one sentence of bounded length that a terminal can show."""
    if not sentence or len(sentence) > LONGEST or "Traceback" in sentence or "\n" in sentence or "\x1b" in sentence:
        return Outcome(kind, seed, "failed", f"not a sentence ({len(sentence)} characters): {sentence[:600]!r}")
    return Outcome(kind, seed, "refused", sentence)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Interrupt what takes too long; what hangs in foreign code is named by faulthandler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    started, spent = time.monotonic(), time.process_time()

    def stop(*_: object) -> None:
        busy = time.process_time() - spent < SECONDS and time.monotonic() - started < PATIENCE
        if busy:  # the machine, with others' work
            signal.alarm(SECONDS)
            return
        raise HangError(f"no end after {time.monotonic() - started:.0f} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(kind: str, seed: int) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="damaged-"))
    before = Path.cwd()
    try:
        os.chdir(folder)
        return run_case(kind, seed, folder)
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def warm_up() -> None:
    """Import what training needs before a case is timed: an interrupted import fails for all that come after."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        assert fit(small_csv(Path(folder)), Path(folder) / "run")() == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2_400)
    parser.add_argument("--seed", type=int, default=0, help="of the first case of each kind")
    parser.add_argument("--only", choices=list(KINDS), help="one case of this kind, in full")
    options = parser.parse_args()
    faulthandler.enable()
    torch.set_num_threads(1)
    if options.only:
        outcome = run(options.only, options.seed)
        print(outcome.result, outcome.about)
        return int(outcome.result == "failed")
    each = -(-options.cases // len(KINDS))
    counts: Counter[tuple[str, str]] = Counter()
    failures, started = [], time.time()
    warm_up()
    for kind in KINDS:
        for seed in range(options.seed, options.seed + each):
            sys.stderr.write(f"\r{kind} {seed}      ")
            outcome = run(kind, seed)
            counts[kind, outcome.result] += 1
            if outcome.result == "failed":
                failures.append(outcome)
                sys.stderr.write(f"\n{outcome.kind} {outcome.seed}: {outcome.about[-1500:]}\n")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], check=True, capture_output=True, text=True
    ).stdout.strip()
    lines = [
        f"commit {commit}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        f"{each * len(KINDS):,} damaged inputs and configurations, seeds {options.seed} to {options.seed + each - 1}, "
        f"{(time.time() - started) / 60:.0f} minutes; at most {SECONDS} s of processor time and {LONGEST:,} characters "
        "each",
        f"{len(failures)} failures (another exception than ours, a hang, or a message that is no sentence)",
        "",
        f"{'kind':<20}{'done':>8}{'refused':>10}{'failed':>8}",
        *(
            f"{kind:<20}{counts[kind, 'done']:>8}{counts[kind, 'refused']:>10}{counts[kind, 'failed']:>8}"
            for kind in KINDS
        ),
        *(f"failed: {one.kind} {one.seed}: {one.about.strip().splitlines()[-1][:200]}" for one in failures),
    ]  # fmt: skip
    LOG.write_text("\n".join(lines) + "\n")
    print("\n" + "\n".join(lines))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
