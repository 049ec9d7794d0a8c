from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.data import load_federation
from holdfast.data.sets.federated.bar_clients import ACTIONS, read_actions
from holdfast.errors import DataError


def write_bar(root: Path, train: int = 40, test: int = 12) -> Path:
    """Usual places are dark, unusual ones bright; the green channel is the action."""
    for part, count, light in (("train", train, 40), ("test", test, 200)):
        folder = root / "BAR" / part
        folder.mkdir(parents=True)
        for number, action in enumerate(ACTIONS):
            for image in range(count):
                colour = (light, 20 * number, 0)
                Image.fromarray(np.full((30, 40, 3), colour, np.uint8)).save(
                    folder / f"{action}_{image}.jpg", quality=95
                )
    return root


def test_clients_see_one_environment_and_are_tested_in_both(tmp_path: Path) -> None:
    clients = load_federation("bar", write_bar(tmp_path), clients=10, size=16, check_counts=False)
    assert len(clients) == 10 and clients.classes == 6 and clients.input_shape == (3, 16, 16)
    assert clients.elsewhere is not None
    sides = []
    for client in range(10):
        light = [(part.of(client)[0][:, 0].mean((1, 2)) > 0.5) for part in (clients.train, clients.test)]
        other = clients.elsewhere.of(client)[0][:, 0].mean((1, 2)) > 0.5
        sides.append(bool(light[0][0]))
        assert (torch.cat(light) == sides[-1]).all() and (other != sides[-1]).all()
        for part in (clients.train, clients.elsewhere):
            inputs, labels = part.of(client)
            assert torch.equal((inputs[:, 1].mean((1, 2)) * 255 / 20).round().long(), labels)
        parts = (clients.train, clients.validation, clients.test)
        assert len({label for part in parts for label in part.of(client)[1].tolist()}) == 5
        assert len(set(clients.elsewhere.of(client)[1].tolist())) == 5
    assert sorted(sides) == [False] * 5 + [True] * 5


def test_actions_are_read_from_names_with_a_space_too(tmp_path: Path) -> None:
    write_bar(tmp_path, 2, 1)
    paths, labels = read_actions(tmp_path / "BAR" / "train")
    assert len(paths) == 12 and labels.tolist() == [number for number in range(6) for _ in range(2)]
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "BAR" / "train" / "swimming_1.jpg")
    with pytest.raises(DataError, match=r"swimming_1\.jpg is not named after an action"):
        read_actions(tmp_path / "BAR" / "train")


def test_other_counts_than_the_published_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="326, 520, 163, 279, 336, 317"):
        load_federation("bar", write_bar(tmp_path, 2, 1))
