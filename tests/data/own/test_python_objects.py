"""Data that code of the user's own makes, by name."""

import textwrap
from pathlib import Path

import pytest
import torch

from holdfast.cli.main import main
from holdfast.data import OwnData, ReadingOptions
from holdfast.errors import HoldfastError

CODE = """
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from holdfast import Examples


class Dicts(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        return {"image": Image.new("RGB", (12, 12), (4 * i, 0, 0)), "label": "ab"[i % 2], "place": i % 3}


class Ragged(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return torch.arange(1 + i % 5) + 1, i % 2

    @staticmethod
    def collate_inputs(items):
        return torch.nn.utils.rnn.pad_sequence(items, batch_first=True)


def pictures():
    return Dicts()


class Described(Dicts):
    def __getitem__(self, i):
        return {"file": f"{i}.png", **super().__getitem__(i), "ward": f"w{i % 3}"}


def described():
    return Described()


def by_part():
    return {"train": Ragged(), "test": Ragged()}


def examples():
    return Examples.of(torch.randn(30, 2), torch.arange(30) % 2)


ready = TensorDataset(torch.randn(30, 3), torch.arange(30) % 3)
number = 7


def floats():
    return TensorDataset(torch.randn(20, 3), torch.randn(20))


def masks():
    return TensorDataset(torch.randn(20, 3), torch.ones(20, 4, 4))


def wrong_parts():
    return {"left": ready}


def broken():
    raise RuntimeError("no disk")


def needy(root):
    return ready


class Late(Dicts):
    def __getitem__(self, i):
        return (torch.zeros(2), i % 2) if i < 7 else 1 / 0
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    name = f"mine_{abs(hash(str(tmp_path))) % 10**9}"  # a module is imported once in a process
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(CODE))
    monkeypatch.chdir(tmp_path)
    return name


def read(name, **options):
    return OwnData(name, ReadingOptions(**options)).load(Path())


def test_items_may_be_dicts_with_pil_images_words_and_an_attribute(here):
    splits = read(f"{here}:pictures", attribute=("place",))
    assert splits.train.class_names == ("a", "b") and splits.train.n_groups == 6
    pixels = splits.train.inputs.gather(torch.tensor([0]))
    first = int(splits.train.ids[0])
    assert pixels.shape == (1, 3, 12, 12) and pixels[0, 0, 0, 0] == pytest.approx(4 * first / 255)
    ids = torch.cat([part.ids for part in (splits.train, splits.validation, splits.test)])
    assert sorted(ids.tolist()) == list(range(60))


def test_parts_are_kept_and_inputs_of_different_lengths_collated(here):
    splits = read(f"{here}:by_part")
    assert len(splits.test) == 40 and len(splits.train) + len(splits.validation) == 40
    assert splits.test.inputs.gather(torch.tensor([0, 4])).shape == (2, 5)
    assert any("cut from training" in note for note in splits.notes)


def test_a_ready_dataset_and_examples_will_do(here):
    assert read(f"{here}:ready").train.n_classes == 3
    assert len(read(f"{here}:examples").test) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("floats", "which isn't a class: regression is not supported"),
        ("masks", "shape \\(4, 4\\).*not supported"),
        ("wrong_parts", "call them train, validation and test"),
        ("broken", "RuntimeError: no disk .*line"),
        ("needy", "needs the argument 'root'"),
        ("number", "gives a int"),
        ("picures", "did you mean 'pictures'"),
        ("Late", "ZeroDivisionError"),
    ],
)
def test_what_is_no_data_is_a_sentence_that_names_it(here, name, message):
    with pytest.raises(HoldfastError, match=message):
        read(f"{here}:{name}")


def test_code_of_installed_packages_is_not_called():
    with pytest.raises(HoldfastError, match="installed package"):
        read("os:listdir")


def test_it_trains_from_the_command_line(here, capsys):
    command = [
        "fit",
        "--data",
        f"{here}:pictures",
        "--attribute",
        "place",
        "--model",
        "mlp",
        "--epochs",
        "1",
        "--out",
        "run",
    ]
    assert main(command) == 0
    assert "60 items" in capsys.readouterr().out
    assert main(["fit", "--data", "no_such_module:x", "--out", "other"]) == 2
    assert "no module 'no_such_module'" in capsys.readouterr().err and not Path("other").exists()
