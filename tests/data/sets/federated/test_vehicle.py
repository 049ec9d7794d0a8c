from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from holdfast.data import load_federation
from holdfast.data.sets.federated.vehicle import node_arrays, published_sizes, standardise
from holdfast.errors import DataError
from tests.data.leaf_files import write_leaf

SIZES = [59, 8, 20, 156, 17, 13, 43, 25, 71, 388, 21, 13, 534, 84, 147, 36, 7, 13, 15, 130, 20, 30, 10]


def cells(extra: int = 5, nodes: int = 23) -> dict[str, np.ndarray]:
    """X and Y as in vehicle.mat: cell arrays of (n, 100) and (n, 1)."""
    rng = np.random.default_rng(0)
    x, y = np.empty((nodes, 1), object), np.empty((nodes, 1), object)
    for node in range(nodes):
        n = SIZES[node % 23] + extra
        x[node, 0] = rng.normal(node, 1 + node, (n, 100))
        x[node, 0][:, 3] = 2.5
        y[node, 0] = rng.choice([-1, 1], (n, 1)).astype(np.int16)
    return {"X": x, "Y": y}


def put(root: Path, content: dict[str, np.ndarray]) -> Path:
    (root / "vehicle").mkdir(parents=True)
    savemat(root / "vehicle" / "vehicle.mat", content)
    return root


def test_training_sizes_are_the_published_ones() -> None:
    assert published_sizes().tolist() == SIZES
    assert (sum(SIZES), int(np.median(SIZES))) == (1860, 25)


def test_a_client_is_a_node_cut_to_its_size_and_the_rest_is_for_the_test(tmp_path: Path) -> None:
    content = cells()
    clients = load_federation("vehicle", put(tmp_path, content), seed=4)
    assert (len(clients), clients.task, clients.classes, clients.input_shape) == (23, "margin", 2, (100,))
    assert (clients.train.counts + clients.validation.counts).tolist() == SIZES
    assert clients.validation.counts.tolist() == [size // 10 for size in SIZES]
    assert int((clients.validation.counts < 4).sum()) == 14
    assert set(clients.test.counts.tolist()) == {5}
    parts = (clients.train, clients.validation, clients.test)
    for node in (0, 12):
        mine = torch.cat([part.of(node)[0] for part in parts])
        labels = torch.cat([part.of(node)[1] for part in parts])
        raw = content["X"][node, 0]
        expected = (raw - raw.mean(0)) / np.where(raw.std(0) == 0, 1, raw.std(0))
        order, theirs = mine[:, 0].argsort(), expected[:, 0].argsort()
        np.testing.assert_allclose(mine[order], expected[theirs], atol=1e-5)
        assert labels[order].tolist() == ((content["Y"][node, 0][theirs, 0] + 1) // 2).tolist()
    assert load_federation("vehicle", tmp_path, seed=5).fingerprint() != clients.fingerprint()


def test_a_feature_that_never_changes_becomes_zero() -> None:
    values = standardise(np.array([[1.0, 7.0], [3.0, 7.0]]))
    assert values.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_the_published_json_is_taken_as_it_is(tmp_path: Path) -> None:
    """Ditto's files have a list around every label, and are standardised and shuffled already."""
    rng = np.random.default_rng(0)
    data = {
        part: {
            name: (rng.random((n, 100)).tolist(), [[int(sign)] for sign in rng.choice([-1, 1], n)])
            for name, n in (("f_00000", size), ("f_00001", 8))
        }
        for part, size in (("train", 20), ("test", 6))
    }
    for part, name in (("train", "mytrain"), ("test", "mytest")):
        write_leaf(tmp_path / "vehicle" / "data" / part / f"{name}.json", data[part])
    clients = load_federation("vehicle", tmp_path, seed=9)
    assert clients.names == ("f_00000", "f_00001") and clients.task == "margin"
    rows = np.array(data["train"]["f_00000"][0], np.float32)
    assert np.array_equal(clients.train.of(0)[0].numpy(), rows[:18])
    assert np.array_equal(clients.validation.of(0)[0].numpy(), rows[18:])
    signs = [label[0] for label in data["test"]["f_00000"][1]]
    assert clients.test.of(0)[1].tolist() == [(sign + 1) // 2 for sign in signs]


def without_y(content: dict[str, np.ndarray]) -> None:
    del content["Y"]


def plain(content: dict[str, np.ndarray]) -> None:
    content["X"] = np.zeros((23, 100))


def ragged(content: dict[str, np.ndarray]) -> None:
    content["Y"][2, 0] = content["Y"][2, 0][:-1]


def other_label(content: dict[str, np.ndarray]) -> None:
    content["Y"][2, 0] = content["Y"][2, 0] * 2


def fewer_features(content: dict[str, np.ndarray]) -> None:
    content["X"][2, 0] = content["X"][2, 0][:, :99]


def too_few(content: dict[str, np.ndarray]) -> None:
    content["X"][2, 0], content["Y"][2, 0] = content["X"][2, 0][:20], content["Y"][2, 0][:20]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_y, "has no cell array Y"),
        (plain, "has no cell array X"),
        (ragged, "node 2 of .* there are 25 samples and 24 labels"),
        (other_label, "node 2 of .* labels must be -1 or 1"),
        (fewer_features, r"node 2 of .* must have 100 features, and X has shape \(25, 99\)"),
        (too_few, "node 2 of .* has 20 samples, and 20 are for training; get the whole file"),
    ],
)
def test_other_contents_are_refused_with_a_sentence(tmp_path: Path, damage, message) -> None:
    content = cells()
    damage(content)
    with pytest.raises(DataError, match=message):
        load_federation("vehicle", put(tmp_path, content))


def test_another_number_of_nodes_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 3 cells of X and 3 of Y instead of 23"):
        load_federation("vehicle", put(tmp_path, cells(nodes=3)))
    path = tmp_path / "vehicle" / "vehicle.mat"
    for content in (path.read_bytes()[:200], b"", b"no Matlab file at all" * 20):
        path.write_bytes(content)
        with pytest.raises(DataError, match="can't be read as a Matlab file"):
            load_federation("vehicle", tmp_path)


def test_labels_may_be_a_column() -> None:
    features, labels = node_arrays(np.zeros((2, 100)), np.array([[-1], [1]]))
    assert features.dtype == np.float32 and labels.tolist() == [0, 1]
