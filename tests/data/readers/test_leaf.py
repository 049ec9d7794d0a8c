import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.data import load_federation
from holdfast.data.readers.leaf import leaf_folder, read_leaf
from holdfast.data.sets.federated.femnist import character_arrays
from holdfast.errors import DataError
from tests.data.leaf_files import write_leaf, writer


def all_data(root: Path, sizes: dict[str, int], files: int = 1) -> Path:
    names = list(sizes)
    for number in range(files):
        users = {name: writer(sizes[name], names.index(name)) for name in names[number::files]}
        write_leaf(root / "femnist" / "all_data" / f"all_data_{number}.json", users)
    return root


def test_unsplit_files_give_a_client_per_writer_split_72_8_20(tmp_path: Path) -> None:
    clients = load_federation("femnist", all_data(tmp_path, {"f02": 25, "f01": 50}), writers=2)
    assert clients.names == ("f01", "f02")
    assert [part.counts.tolist() for part in (clients.train, clients.validation, clients.test)] == [
        [36, 18],
        [4, 2],
        [10, 5],
    ]
    assert clients.input_shape == (1, 28, 28) and clients.classes == 62
    mine = torch.cat([part.of(1)[0] for part in (clients.train, clients.validation, clients.test)]).flatten(1)
    raw = torch.tensor(writer(25, 0)[0])
    assert torch.equal(mine[mine[:, 0].argsort()], raw[raw[:, 0].argsort()])


def test_split_files_keep_their_test_data_and_hold_out_a_tenth_of_the_rest(tmp_path: Path) -> None:
    for part, samples in (("train", 30), ("test", 7)):
        write_leaf(tmp_path / "femnist" / "data" / part / "a.json", {"w": writer(samples, samples)})
    clients = load_federation("femnist", tmp_path)
    assert (int(clients.train.counts), int(clients.validation.counts), int(clients.test.counts)) == (27, 3, 7)
    assert clients.test.of(0)[1].tolist() == writer(7, 7)[1]


def test_the_sample_of_writers_depends_on_the_seed_and_not_on_the_files(tmp_path: Path) -> None:
    sizes = {f"f{number:02d}": 3 for number in range(30)}
    one, other = all_data(tmp_path / "one", sizes), all_data(tmp_path / "other", sizes, files=4)
    chosen = load_federation("femnist", one, seed=0, writers=6).names
    assert len(chosen) == 6
    assert load_federation("femnist", other, seed=0, writers=6).names == chosen
    assert load_federation("femnist", one, seed=1, writers=6).names != chosen
    assert len(load_federation("femnist", one, writers=0)) == 30


def test_every_writer_is_as_likely_to_be_sampled(tmp_path: Path) -> None:
    folder = all_data(tmp_path, {f"f{number}": 2 for number in range(8)}) / "femnist"

    def labels_only(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((len(y), 1)), np.asarray(y)

    counts = dict.fromkeys((f"f{number}" for number in range(8)), 0)
    for seed in range(200):
        for name in read_leaf(folder, labels_only, 2, seed).train:
            counts[name] += 1
    assert all(25 <= count <= 78 for count in counts.values()), "50 expected, four and a half standard deviations"


def test_empty_and_small_users_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        clients = load_federation("femnist", all_data(tmp_path, {"a": 0, "b": 1, "c": 5, "d": 9}))
    assert clients.names == ("c", "d")
    assert "2 users of" in caplog.text and "fewer than 2 samples and are left out" in caplog.text
    assert "has 2 users where 205 were wanted" in caplog.text
    with pytest.raises(DataError, match="no user with at least 2 samples"):
        load_federation("femnist", all_data(tmp_path / "other", {"a": 0}))


def change(key: str, value: object):
    def damage(content: dict[str, Any]) -> None:
        content[key] = value

    return damage


def drop(key: str):
    def damage(content: dict[str, Any]) -> None:
        del content[key]

    return damage


def of_user(key: str, value: object):
    def damage(content: dict[str, Any]) -> None:
        content["user_data"]["b"][key] = value

    return damage


def ragged(content: dict[str, Any]) -> None:
    content["user_data"]["b"]["x"][1] = [0.0] * 783


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop("num_samples"), "all_data_0.json has no 'num_samples'; LEAF's files have users"),
        (change("users", "ab"), "has no 'users'"),
        (change("num_samples", [3]), "has 2 users and 1 num_samples"),
        (change("num_samples", [3, 4]), "user 'b' of .* has 3 x, 3 y and num_samples 4"),
        (change("user_data", {}), "has no x and y for user 'a'"),
        (of_user("y", [1, 2]), "user 'b' of .* has 3 x, 2 y"),
        (ragged, "user 'b' of .* has values that don't fit"),
        (of_user("x", [[0.0] * 783] * 3), r"an image must have 784 numbers, and x has shape \(3, 783\)"),
        (of_user("x", [[float("nan")] * 784] * 3), "x has numbers that aren't finite"),
        (of_user("x", [["a"] * 784] * 3), "user 'b' of .* has values that don't fit"),
        (of_user("y", [0, 1, 62]), "y must be classes from 0 to 61"),
        (of_user("y", [0, 1, 0.5]), "y must be classes from 0 to 61"),
        (of_user("y", ["a", "b", "c"]), "has values that don't fit"),
    ],
)
def test_files_in_another_form_are_refused_with_a_sentence(tmp_path: Path, damage, message) -> None:
    path = all_data(tmp_path, {"a": 3, "b": 3}) / "femnist" / "all_data" / "all_data_0.json"
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        load_federation("femnist", tmp_path)


def test_truncated_files_empty_folders_and_doubled_users_are_refused(tmp_path: Path) -> None:
    path = all_data(tmp_path, {"a": 3, "b": 3}) / "femnist" / "all_data" / "all_data_0.json"
    whole = path.read_text()
    (path.parent / "copy.json").write_text(whole)
    with pytest.raises(DataError, match="user 'a' occurs twice"):
        load_federation("femnist", tmp_path)
    (path.parent / "copy.json").unlink()
    path.write_text(whole[:-9])
    with pytest.raises(DataError, match=r"can't be read as JSON .* it is damaged"):
        load_federation("femnist", tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="has no json files"):
        load_federation("femnist", tmp_path)
    path.parent.rmdir()
    with pytest.raises(DataError, match="neither train/ and test/ nor all_data/"):
        leaf_folder(tmp_path / "femnist")


def test_a_user_without_test_samples_is_named(tmp_path: Path) -> None:
    write_leaf(tmp_path / "femnist" / "train" / "a.json", {"w": writer(5, 0), "v": writer(5, 1)})
    write_leaf(tmp_path / "femnist" / "test" / "a.json", {"w": writer(5, 2)})
    with pytest.raises(DataError, match=r"user 'v' of .* has no test samples; run LEAF's script with -t sample"):
        load_federation("femnist", tmp_path)


def test_skewed_clients_have_five_of_the_classes_each(tmp_path: Path) -> None:
    labels = np.tile(np.arange(62), 6)
    images = np.repeat(labels[:, None] / 62, 784, 1)
    write_leaf(tmp_path / "femnist" / "all_data" / "a.json", {"w": (images.tolist(), labels.tolist())})
    clients = load_federation("femnist-skewed", tmp_path, clients=12)
    assert len(clients) == 12 and clients.classes == 62
    for client in range(12):
        seen = torch.cat([part.of(client)[1] for part in (clients.train, clients.validation, clients.test)])
        assert len(seen.unique()) == 5
    assert torch.allclose(clients.train.inputs[:, 0, 5, 5], clients.train.labels / 62, atol=1e-6)


def test_a_class_that_nobody_wrote_is_named(tmp_path: Path) -> None:
    write_leaf(tmp_path / "femnist" / "all_data" / "a.json", {"w": (np.zeros((9, 784)).tolist(), [3] * 9)})
    with pytest.raises(DataError, match=r"no writer in .* has written class"):
        load_federation("femnist-skewed", tmp_path)


def test_characters_are_images_of_28_by_28() -> None:
    images, labels = character_arrays(*writer(2, 0))
    assert images.shape == (2, 1, 28, 28) and images.dtype == np.float32 and labels.dtype == np.int64
