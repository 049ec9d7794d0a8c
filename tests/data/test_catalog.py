import dataclasses
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import tyro

import holdfast.data
from holdfast.data import (
    DATASETS,
    FEDERATIONS,
    DataSet,
    Examples,
    RemoteFile,
    Splits,
    data_root,
    describe,
    find,
    get,
    load,
    status,
)
from holdfast.data.catalog import register
from holdfast.data.sets.text import math_problems
from holdfast.errors import ConfigError, DataError
from holdfast.training import Training

NEEDS_PATH = {"folder", "arrays"}
RECIPE_KEYS = {"model", "weights"} | {field.name for field in fields(Training)}


@dataclasses.dataclass(frozen=True)
class Toy(DataSet):
    """A set of one file.

    Attributes:
        size: how many.
    """

    name = "toy"
    summary = "a toy"
    files = (RemoteFile("toy/a.bin", also=("toy/a.txt",)), RemoteFile("toy.tar", unpacks_to="toy-folder"))
    size: int = 3

    def load(self, root: Path) -> Splits:
        self.locate(root, "toy/a.bin", "toy/a.txt")
        part = Examples.of(torch.zeros(self.size, 1), [0] * self.size, class_names=("no", "yes"))
        return Splits(self.name, part, part, part)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no data set 'waterbird'; did you mean 'waterbirds'"):
        find("waterbird")


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "toy", Toy)
    assert find("toy") is Toy
    with pytest.raises(ConfigError, match="two data sets named 'toy'"):
        register(Toy)


def test_an_unknown_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match="data set 'coloured-digits' has no option 'corelation'; did you mean 'correl"
    ):
        load("coloured-digits", corelation=0.9)


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("cmnist5", "palette", "dissertaton", "has no palette 'dissertaton'; did you mean 'dissertation'"),
        ("cmnist5", "colouring", "background", "has no colouring 'background'"),
        ("civilcomments", "partition", "white", "has no partition 'white'"),
    ],
)
def test_an_unknown_choice_is_answered_with_the_nearest(name: str, option: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name, **{option: value})


def test_a_required_option_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="data set 'folder' needs the option 'path'"):
        load("folder")


def test_the_root_is_explicit_then_the_environment_then_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", "/home/somebody")
    assert data_root("~/here") == Path("/home/somebody/here")
    assert data_root() == tmp_path
    monkeypatch.delenv("HOLDFAST_DATA")
    assert data_root() == Path("/home/somebody/.cache/holdfast/data")


@pytest.mark.parametrize(
    "name",
    [
        "mnist",
        "fashion-mnist",
        "cmnist5",
        "spuco-mnist",
        "cifar10",
        "waterbirds",
        "civilcomments",
        "snli",
        "multinli",
    ],
)
def test_a_missing_file_is_named_with_the_command_that_gets_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert f"holdfast data get {name}" in message
    assert "HOLDFAST_DATA" in message and "--data-root" in message


@pytest.mark.parametrize("name", ["celeba", "restricted-imagenet", "urbancars"])
def test_data_behind_a_licence_says_where_it_is(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"https://.* or set HOLDFAST_DATA"):
        load(name, tmp_path)
    with pytest.raises(DataError, match=r"can't be fetched automatically: .*https://"):
        get(find(name), tmp_path)


def test_status_says_which_files_are_present_in_whichever_form(tmp_path: Path) -> None:
    assert status(Toy, tmp_path) == {"toy/a.bin": None, "toy-folder": None}
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/a.txt").write_text("a")
    (tmp_path / "toy-folder").mkdir()
    assert status(Toy, tmp_path) == {"toy/a.bin": tmp_path / "toy/a.txt", "toy-folder": tmp_path / "toy-folder"}
    assert get(Toy, tmp_path) == [tmp_path / "toy/a.txt", tmp_path / "toy-folder"]
    assert len(Toy(size=2).load(tmp_path).train) == 2


def test_description_falls_back_to_classes_and_keeps_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/a.bin").write_text("a")
    assert describe(Toy().load(tmp_path))["train"] == {"no": 3, "yes": 0}


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_the_command_line_can_read_every_data_set_and_documents_its_options(name: str) -> None:
    cls = DATASETS[name]
    made = tyro.cli(cls, args=["--path", "/somewhere"] if name in NEEDS_PATH else [])
    assert isinstance(made, cls)
    assert hash(made) == hash(dataclasses.replace(made))
    documentation = cls.__doc__ or ""
    for field in dataclasses.fields(cls):
        assert f"{field.name}: " in documentation


def test_options_reach_the_data_set_through_the_command_line() -> None:
    made = tyro.cli(DATASETS["coloured-digits5"], args=["--minority-ratio", "8", "4", "2", "1", "--correlation", ".92"])
    assert made == DATASETS["coloured-digits5"](minority_ratio=(8, 4, 2, 1), correlation=0.92)
    made = tyro.cli(DATASETS["folder"], args=["--path", "/birds", "--columns.label", "kind"])
    assert made.columns.label == "kind" and made.path == Path("/birds")


@pytest.mark.parametrize("cls", DATASETS.values(), ids=list(DATASETS))
def test_every_data_set_has_a_one_line_summary_a_recipe_and_addresses(cls: type[DataSet]) -> None:
    assert cls.summary and "\n" not in cls.summary
    assert set(cls.recipe) <= RECIPE_KEYS
    for file in cls.files:
        assert cls.by_hand or file.url


#: Whose publishers give no sum; everything else that is fetched has one.
WITHOUT_A_SUM = {"waterbird_complete95_forest2water2.tar.gz"}
FILES = {
    file.path: file
    for files in (*(cls.files for cls in (*DATASETS.values(), *FEDERATIONS.values())), math_problems.FILES.values())
    for file in files
}


@pytest.mark.parametrize("file", FILES.values(), ids=list(FILES))
def test_everything_that_is_fetched_has_a_checksum_or_a_reason_why_not(file: RemoteFile) -> None:
    assert all(url.startswith(("http://", "https://")) for url in file.addresses)
    assert len(set(file.addresses)) == len(file.addresses)
    assert not file.mirrors or file.url
    digits = {"sha256": 64, "md5": 32, "git_blob": 40, "content_md5": 32}
    for kind, length in digits.items():
        digest = getattr(file, kind)
        assert digest is None or re.fullmatch(f"[0-9a-f]{{{length}}}", digest)
    if file.url is not None:
        assert (file.checksum is None) == (file.path in WITHOUT_A_SUM) == bool(file.unchecked)
        # Without a sum, or with one that can be forged, the way must be safe.
        assert file.sha256 or all(url.startswith("https://") for url in file.addresses)


def test_everything_that_is_fetched_has_a_mirror() -> None:
    assert [path for path, file in FILES.items() if file.url and not file.mirrors] == []


def test_importing_the_package_imports_no_optional_and_no_slow_package() -> None:
    slow = "sklearn", "pyarrow", "transformers", "torchvision"
    code = f"import sys, holdfast.data; print([name for name in {slow!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_exported_exists() -> None:
    assert all(hasattr(holdfast.data, name) for name in holdfast.data.__all__)
