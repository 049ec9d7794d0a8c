"""What happens to many kinds of input, each intact and broken in two ways: a report, or a sentence before training.

Each is made here, then read and trained on for one epoch: by ``holdfast fit`` where a path or a name can stand for it,
in Python where it is a torch Dataset. What is broken must end in one sentence and leave no run behind.

Run: ``python -m benchmarks.inputs``, a minute. Writes docs/results/inputs.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

from holdfast import training
from holdfast.cli.main import main as holdfast
from holdfast.data import Examples, Splits
from holdfast.errors import HoldfastError
from holdfast.methods import METHODS

PAGE = Path(__file__).parents[1] / "docs" / "results" / "inputs.md"
ROWS = 60
Run = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """One way to give an input.

    Attributes:
        about: what is given, or what is broken about it.
        run: makes it in an empty folder and uses it.
    """

    about: str
    run: Callable[[Path], object]


@dataclass(frozen=True)
class Outcome:
    """What happened: whether a model was trained, and the line that says what was read or why not."""

    trained: bool
    line: str


# -------------------------------------------------------------------------------------------------------------- tables


def wards() -> dict[str, Any]:
    """A table of patients."""
    rng = np.random.default_rng(0)
    died = rng.integers(0, 2, ROWS)
    return {
        "age": (50 + 10 * died + rng.normal(0, 5, ROWS)).round(1).tolist(),
        "beds": rng.integers(1, 9, ROWS).tolist(),
        "ward": rng.choice(["north", "south"], ROWS).tolist(),
        "sex": rng.choice(["f", "m"], ROWS).tolist(),
        "label": np.where(died, "died", "lived").tolist(),
    }


def replaced(column: str, row: int, value: Any) -> dict[str, Any]:
    """The table with one cell changed."""
    rows = wards()
    rows[column] = [value if number == row else old for number, old in enumerate(rows[column])]
    return rows


def fit(place: str | Path, folder: Path, *words: str) -> object:
    """By the command."""
    return holdfast(["fit", "--data", str(place), "--epochs", "1", "--out", str(folder / "run"), *words])


def table(suffix: str, rows: Callable[[], dict[str, Any]] = wards, *words: str, spoil: str = "") -> Run:
    """Write a table in the format of a suffix, perhaps spoil the file, and train on it."""

    def run(folder: Path) -> object:
        path, whole = folder / f"wards.{suffix}", pa.table(rows())
        if suffix == "csv":
            pa_csv.write_csv(whole, path)
        elif suffix == "parquet":
            pq.write_table(whole, path)
        elif suffix == "jsonl":
            path.write_text(whole.to_pandas().to_json(orient="records", lines=True))
        else:
            with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, whole.schema) as writer:
                writer.write_table(whole)
        content = path.read_bytes()
        if spoil == "cut":
            path.write_bytes(content[:-20])
        return fit(path, folder, *words)

    return run


def spreadsheet(before: str = "", encoding: str = "utf-8") -> Run:
    """The table as a spreadsheet program of another language writes it: semicolons, and commas in numbers."""

    def run(folder: Path) -> object:
        rows = {**wards(), "label": ["gesund" if label == "lived" else "über" for label in wards()["label"]]}
        lines = [
            ";".join(rows),
            *(";".join(str(cell).replace(".", ",") for cell in row) for row in zip(*rows.values(), strict=True)),
        ]
        (folder / "wards.csv").write_text(before + "\r\n".join(lines) + "\r\n", encoding=encoding)
        return fit(folder / "wards.csv", folder)

    return run


def array_parts(**changed: Any) -> Run:
    """Arrays of two parts in an npz file."""

    def run(folder: Path) -> object:
        x, y = np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32), np.arange(ROWS) % 2
        np.savez(folder / "data.npz", **{"x_train": x, "y_train": y, "x_test": x[:20], "y_test": y[:20], **changed})
        return fit(folder / "data.npz", folder)

    return run


def with_column(name: str, values: list[Any]) -> Callable[[], dict[str, Any]]:
    """The table with a column more, or another in its place."""
    return lambda: {**wards(), name: values}


def reviews(missing: bool = False, quantity: bool = False) -> dict[str, Any]:
    """Texts with a class."""
    words = ["good", "bad", "long", "short", "film", "book", "loved", "hated"]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 12)) for _ in range(ROWS)]
    labels = [number / 7 if quantity else "good" if "good" in text else "bad" for number, text in enumerate(texts)]
    return {"review": [None if missing and n == 5 else text for n, text in enumerate(texts)], "label": labels}


def tokenized(kind: str) -> Run:
    """Texts with the tokenizer of a local folder."""

    def run(folder: Path) -> object:
        pq.write_table(pa.table(reviews()), folder / "reviews.parquet")
        place = folder / "tokenizer"
        place.mkdir()
        if kind == "whole":
            words = sorted({word for text in reviews()["review"] for word in text.split()})
            known = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
            plain = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))  # noqa: S106 - no password
            plain.pre_tokenizer = pre_tokenizers.Whitespace()
            PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(place)  # noqa: S106
        elif kind == "damaged":
            (place / "tokenizer.json").write_text("{")
            (place / "tokenizer_config.json").write_text("{}")
        return fit(folder / "reviews.parquet", folder, "--tokenizer", str(place), "--model", "text-bag")

    return run


# -------------------------------------------------------------------------------------------------------------- images


def picture(path: Path, number: int) -> None:
    """A small image; its file's folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def class_folders(spoil: str = "", parts: tuple[str, ...] = ("",)) -> Run:
    """A folder of images per class."""

    def run(folder: Path) -> object:
        root = folder / "photos"
        for part in parts:
            for name in ("cat", "dog"):
                for number in range(8):
                    picture(root / part / name / f"{number}.png", number)
        if spoil == "truncated":
            path = root / parts[0] / "cat" / "3.png"
            path.write_bytes(path.read_bytes()[:100])
        elif spoil == "beside":
            picture(root / "lost.png", 0)
        elif spoil == "other folder":
            picture(root / "extra" / "cat" / "0.png", 0)
        elif spoil == "empty class":
            (root / "train" / "cow").mkdir()
        return fit(root, folder)

    return run


def described(suffix: str, spoil: str = "") -> Run:
    """Images and a table that describes them."""

    def run(folder: Path) -> object:
        root = folder / "photos"
        names: list[Any] = [f"images/{number}.png" for number in range(16)]
        for number, name in enumerate(names):
            picture(root / name, number)
        if spoil == "gone":
            (root / names[7]).unlink()
        elif spoil:
            names[7] = {"leaves": "../secret.png", "absolute": "/etc/passwd", "none": None}[spoil]
        rows = {"file_name": names, "label": ["cat", "dog"] * 8, "place": ["land", "land", "water", "water"] * 4}
        if suffix == "csv":
            pa_csv.write_csv(pa.table(rows), root / "metadata.csv")
        else:
            pq.write_table(pa.table(rows), root / "metadata.parquet")
        return fit(root, folder)

    return run


# -------------------------------------------------------------------------------------- arrays and saved data sets


def arrays(**other: Any) -> Run:
    """An npz file."""

    def run(folder: Path) -> object:
        rng = np.random.default_rng(0)
        whole = {"inputs": rng.normal(size=(ROWS, 5)).astype(np.float32), "labels": np.arange(ROWS) % 2,
                 "attributes": np.arange(ROWS) % 3}  # fmt: skip
        np.savez(folder / "data.npz", **{**whole, **other})
        return fit(folder / "data.npz", folder)

    return run


def saved(spoil: str = "") -> Run:
    """A data set of the hub as `save_to_disk` writes it."""

    def run(folder: Path) -> object:
        with contextlib.redirect_stderr(io.StringIO()):
            whole = datasets.Dataset.from_dict(wards())
            whole = whole.cast_column("label", datasets.ClassLabel(names=["died", "lived"]))
            whole.save_to_disk(str(folder / "saved"))
        file = next((folder / "saved").glob("*.arrow"))
        if spoil == "cut":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        elif spoil == "gone":
            (folder / "saved" / "state.json").unlink()
        return fit(folder / "saved", folder)

    return run


# ------------------------------------------------------------------------------------------------------- torch Datasets


def trained(examples: Callable[[], Examples], model: Callable[[], nn.Module]) -> Run:
    """In Python: examples of a Dataset, a model, an epoch."""

    def run(folder: Path) -> object:
        whole = examples()
        _ = whole.input_shape
        rows = torch.arange(len(whole))
        splits = Splits("dataset", whole.subset(rows[:40]), whole.subset(rows[40:50]), whole.subset(rows[50:]))
        settings = training.Training(epochs=1, batch_size=8)
        training.fit(model(), splits, METHODS["erm"](), settings, run=training.Run.create(folder / "run", {}))
        print(f"dataset: {len(whole)} items; {whole.n_classes} classes ({', '.join(whole.class_names)})")
        return 0

    return run


def items(make: Callable[[int], Any], **options: Any) -> Callable[[], Examples]:
    """Examples of a list, which is a map-style Dataset."""
    return lambda: Examples.of([make(number) for number in range(ROWS)], **options)


def linear() -> nn.Module:
    """A linear model of five numbers."""
    return nn.Linear(5, 2)


def small_images() -> nn.Module:
    """A linear model of small images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))


def numbers(length: int = 5) -> torch.Tensor:
    """An input."""
    return torch.arange(length) / 10


def padded(batch: list[torch.Tensor]) -> torch.Tensor:
    """Sequences as one batch: cut or filled to five."""
    return torch.stack([torch.nn.functional.pad(one, (0, 5 - len(one))) for one in batch])


def pil(number: int, mode: str = "RGB") -> Image.Image:
    """An image as PIL has it."""
    return Image.fromarray(np.full((8, 8, 3), number, np.uint8)).convert(mode)


DAYS = [f"2026-01-{1 + number % 28:02}" for number in range(ROWS)]
PARTS = ["train", "train", "train", "val", "test"] * (ROWS // 5)
TAGS = [[["smoker"], ["old", "smoker"], []][number % 3] for number in range(ROWS)]

#: The kinds of input; each intact, and broken in two ways.
KINDS: dict[str, tuple[Case, Case, Case]] = {
    "folder of images per class": (
        Case("16 images in two folders", class_folders()),
        Case("an image is cut off", class_folders("truncated")),
        Case("an image beside the class folders", class_folders("beside")),
    ),
    "folder of images per part and class": (
        Case("train, val and test folders", class_folders(parts=("train", "val", "test"))),
        Case("another folder beside them", class_folders("other folder", ("train", "val", "test"))),
        Case("a class folder is empty", class_folders("empty class", ("train", "val", "test"))),
    ),
    "images with metadata.csv": (
        Case("16 images, a row each", described("csv")),
        Case("a path leaves the folder", described("csv", "leaves")),
        Case("an image is missing", described("csv", "gone")),
    ),
    "images with metadata.parquet": (
        Case("16 images, a row each", described("parquet")),
        Case("a path is absolute", described("parquet", "absolute")),
        Case("a row names no file", described("parquet", "none")),
    ),
    "csv of a spreadsheet": (
        Case("60 rows, semicolons and decimal commas", spreadsheet()),
        Case("a title above the table", spreadsheet("Wards of 2026\r\n")),
        Case("another encoding", spreadsheet(encoding="latin-1")),
    ),
    "table, csv": (
        Case("60 rows, labels are words", table("csv")),
        Case("a number is infinite", table("csv", lambda: replaced("age", 7, float("inf")))),
        Case("the label is a quantity", table("csv", wards, "--label", "age")),
    ),
    "table, parquet": (
        Case("60 rows", table("parquet")),
        Case("the file is cut off", table("parquet", spoil="cut")),
        Case("several labels per row", table("parquet", with_column("label", [["a"], ["a", "b"]] * 30))),
    ),
    "table, Arrow": (
        Case("60 rows", table("arrow")),
        Case("the file is cut off", table("arrow", spoil="cut")),
        Case("the label column is named wrongly", table("arrow", wards, "--label", "lable")),
    ),
    "table, JSON lines": (
        Case("60 rows", table("jsonl")),
        Case("the last line is cut off", table("jsonl", spoil="cut")),
        Case("a label is missing", table("jsonl", lambda: replaced("label", 7, None))),
    ),
    "texts, hashed words": (
        Case("60 reviews", table("parquet", reviews)),
        Case("a text is missing", table("parquet", lambda: reviews(missing=True))),
        Case("the label is a rating", table("parquet", lambda: reviews(quantity=True))),
    ),
    "texts, tokenizer of a local folder": (
        Case("60 reviews", tokenized("whole")),
        Case("the folder is empty", tokenized("empty")),
        Case("its files are damaged", tokenized("damaged")),
    ),
    "arrays, npz": (
        Case("60 x 5 numbers", arrays()),
        Case("pickled objects", arrays(labels=np.array([{"a": 1}] * ROWS, object))),
        Case("a NaN", arrays(inputs=np.full((ROWS, 5), np.nan, np.float32))),
    ),
    "arrays of parts, npz": (
        Case("x_train, y_train, x_test, y_test", array_parts()),
        Case("inputs of another shape in the test", array_parts(x_test=np.zeros((20, 4)))),
        Case("one-hot labels", array_parts(y_train=np.eye(2)[np.arange(ROWS) % 2], y_test=np.eye(2)[[0, 1] * 10])),
    ),
    "data set of the hub, on disk": (
        Case("60 rows, classes with names", saved()),
        Case("its data is cut off", saved("cut")),
        Case("state.json is missing", saved("gone")),
    ),
    "data set of the hub, by name": (
        Case("hf:imdb (without a network here)", lambda folder: fit("hf:imdb", folder)),
        Case("no name", lambda folder: fit("hf:", folder)),
        Case("a name that none can have", lambda folder: fit("hf:no/such/name:x", folder)),
    ),
    "torch Dataset of tuples": (
        Case("60 tuples (x, y)", trained(items(lambda n: (numbers(), n % 2)), linear)),
        Case("float targets", trained(items(lambda n: (numbers(), n / 7)), linear)),
        Case("a label of 1000", trained(items(lambda n: (numbers(), 1000 * (n == 7))), linear)),
    ),
    "torch Dataset of dicts with PIL images": (
        Case("60 dicts", trained(items(lambda n: {"image": pil(n), "label": "ab"[n % 2]}), small_images)),
        Case("an image of another size", trained(
            items(lambda n: {"image": pil(n).resize((9, 8)) if n == 7 else pil(n), "label": n % 2}), small_images)),
        Case("no label", trained(items(lambda n: {"image": pil(n)}), small_images)),
    ),
    "torch Dataset of sequences": (
        Case("60 of 1 to 5 numbers, collate=", trained(
            items(lambda n: (numbers(1 + n % 5), n % 2), collate=padded), linear)),
        Case("without collate=", trained(items(lambda n: (numbers(1 + n % 5), n % 2)), linear)),
        Case("a label per element", trained(
            items(lambda n: (numbers(1 + n % 5), torch.zeros(1 + n % 5)), collate=padded), linear)),
    ),
    "groups by several columns": (
        Case("sex and halves of age", table("csv", wards, "--attribute", "sex", "age:2")),
        Case("a column that isn't there", table("csv", wards, "--attribute", "sex", "agee:2")),
        Case("age without cuts", table("csv", wards, "--attribute", "sex", "age")),
    ),
    "groups that overlap, by a column of lists": (
        Case("60 rows with tags", table("parquet", with_column("tags", TAGS), "--attribute", "tags")),
        Case("crossed with sex", table("parquet", with_column("tags", TAGS), "--attribute", "tags", "sex")),
        Case("lists of lists", table("parquet", with_column("tags", [[["a"]]] * ROWS), "--attribute", "tags")),
    ),
    "split by time": (
        Case("28 days", table("csv", with_column("day", DAYS), "--time", "day")),
        Case("no times", table("csv", with_column("day", ["soon", "late"] * 30), "--time", "day")),
        Case("one day", table("csv", with_column("day", ["2026-01-01"] * ROWS), "--time", "day")),
    ),
    "split by a column": (
        Case("train, val, test", table("csv", with_column("split", PARTS))),
        Case("another word", table("csv", with_column("split", ["holdout", *PARTS[1:]]), "--split", "split")),
        Case("a class has no row in training", table("csv", lambda: {
            **wards(), "split": ["test" if label == "died" else "train" for label in wards()["label"]]})),
    ),
}  # fmt: skip


def run(case: Case) -> Outcome:
    """Use an input in a folder of its own.

    Raises:
        AssertionError: if what is refused leaves a run behind, or the refusal is no sentence.
    """
    output, errors = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as made, working_in(Path(made)) as folder:
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                code = case.run(folder)
            sentence = " ".join(errors.getvalue().split()).removeprefix("holdfast: ") if code == 2 else ""
        except HoldfastError as error:
            sentence = str(error)
        if sentence:
            assert not (folder / "run").exists(), f"{case.about}: refused, but a run was begun"
            assert len(sentence) <= 1_200 and "Traceback" not in sentence, sentence
            return Outcome(False, sentence.replace(f"{folder}/", "").replace(str(folder), "."))
    lines = output.getvalue().replace(f"{folder}/", "").splitlines()
    said = [line.partition(": ")[2] for line in lines if line.startswith(NAMES)]
    return Outcome(True, said[0] if said else "trained")


NAMES = ("wards: ", "photos: ", "reviews: ", "data: ", "saved: ", "dataset: ")


@contextlib.contextmanager
def working_in(folder: Path) -> Iterator[Path]:
    """Change into a folder, on a console as wide as a line, without a network."""
    before, width = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "300"
    try:
        yield folder.resolve()
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)


def page(outcomes: dict[str, list[Outcome]]) -> str:
    """The table."""
    rows = []
    for kind, cases in KINDS.items():
        cells = [
            f"{case.about} → {'**trained**: ' if outcome.trained else ''}{outcome.line}".replace("|", "\\|")
            for case, outcome in zip(cases, outcomes[kind], strict=True)
        ]
        rows.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            "<!-- Written by benchmarks/inputs.py; don't edit. -->",
            "",
            "# What happens to your data",
            "",
            f"{len(KINDS)} kinds of input, each intact and broken in two ways, read and trained on for one epoch. What "
            "can't be used is one sentence before training starts, and leaves no run behind. `python -m "
            "benchmarks.inputs` writes this page; [the guide](../guides/your-own-data.md) says how to name columns.",
            "",
            "| input | intact | broken | broken otherwise |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    outcomes = {}
    for kind, cases in KINDS.items():
        outcomes[kind] = [run(case) for case in cases]
        for case, outcome in zip(cases, outcomes[kind], strict=True):
            print(f"{kind}, {case.about}: {'trained, ' if outcome.trained else ''}{outcome.line}")
    chosen.page.write_text(page(outcomes), encoding="utf-8")
    return int(any(outcome.trained for found in outcomes.values() for outcome in found[1:]))


if __name__ == "__main__":
    sys.exit(main())
