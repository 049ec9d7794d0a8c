"""The recordings of an installed package as clients; the package is one of the development requirements."""

import importlib.util

import numpy as np
import pytest
import torch

from holdfast.data import load_federation
from holdfast.data.sets.federated import seglearn
from holdfast.data.sets.federated.seglearn import EXERCISES, features_of, read_recordings
from holdfast.errors import ConfigError, DataError, MissingDependencyError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("seglearn") is None, reason="seglearn is not installed")


def test_a_client_is_an_arm_of_a_person_and_has_every_exercise():
    clients = load_federation("seglearn", exercises=())
    assert len(clients) == 20 and clients.classes == 7 and clients.task == "classes"
    assert clients.names[0] == "subject 1, left arm" and clients.names[-1] == "subject 10, right arm"
    for client in range(20):
        for part in (clients.train, clients.test):
            assert set(part.of(client)[1].tolist()) == set(range(7))
    counts = clients.train.counts + clients.validation.counts + clients.test.counts
    series = read_recordings()
    windows = [len(each) // 50 for each in series["X"]]
    assert int(counts.sum()) == sum(windows)


def test_windows_of_a_series_are_dealt_out_in_their_order_in_time():
    """The features, before they are standardised, are those of the windows in turn: training, validation, test."""
    clients = load_federation("seglearn", exercises=("ER", "IR"))
    assert clients.task == "margin" and clients.train.inputs.shape[1] == 30
    recordings = read_recordings()
    mine = (recordings["subject"] == 3) & (recordings["side"] == 1)
    (place,) = np.flatnonzero(mine & (recordings["y"] == EXERCISES.index("ER")))
    series = recordings["X"][place]
    windows = np.array([features_of(series[at : at + 50]) for at in range(0, len(series) - 49, 50)])
    client = clients.names.index("subject 3, right arm")
    parts = [part.of(client) for part in (clients.train, clients.validation, clients.test)]
    found = torch.cat([inputs[labels == 0] for inputs, labels in parts]).double().numpy()
    assert len(found) == len(windows)
    scale = windows.std(0) / found.std(0)  # the same for all windows of the client
    assert np.allclose(found * scale - (found * scale).mean(0), windows - windows.mean(0), atol=1e-4)
    assert len(parts[0][0]) > 3 * len(parts[2][0]) > 0


def test_a_client_is_standardised_by_its_own_training_windows():
    clients = load_federation("seglearn")
    for client in (0, 7, 19):
        inputs, _ = clients.train.of(client)
        assert torch.allclose(inputs.mean(0), torch.zeros(30), atol=1e-5)
        assert torch.allclose(inputs.std(0, correction=0), torch.ones(30), atol=1e-4)
        assert not torch.allclose(clients.test.of(client)[0].mean(0), torch.zeros(30), atol=1e-2)


def test_features_are_what_they_are_called():
    window = np.array([[0.0, 3.0], [2.0, 3.0], [1.0, 0.0]])
    expected = [1.0, 2.0, np.std([0, 2, 1]), np.std([3, 3, 0]), 0.0, 0.0, 2.0, 3.0, 1.5, 1.5]
    assert features_of(window) == pytest.approx(expected)


def test_other_recordings_are_not_opened(monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(seglearn, "packaged_folder", lambda module, missing: tmp_path)
    with pytest.raises(DataError, match="can't be read"):
        read_recordings()
    (tmp_path / "data" / "watch_dataset.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match=r"is not the file of seglearn 1\.2\.5, so it is not opened"):
        read_recordings()


def test_a_missing_package_is_answered_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'holdfast\[seglearn\]'"):
        load_federation("seglearn")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"exercises": ("IR", "EX")}, "no exercise 'EX'; did you mean"),
        ({"exercises": ("IR",)}, "give two or more different ones"),
        ({"exercises": ("IR", "IR")}, "give two or more different ones"),
        ({"seconds": 0.0}, "windows of 0 seconds"),
    ],
)
def test_options_are_checked(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_federation("seglearn", **options)
