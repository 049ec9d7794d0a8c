from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import load
from holdfast.data.sets.images.coloured import PALETTES
from holdfast.data.sets.images.spuco_mnist import coloured_places, paint_background
from tests.data.readers.test_idx import write_mnist


@pytest.mark.parametrize(
    ("difficulty", "side"),
    [("magnitude-large", 28), ("magnitude-medium", 4), ("magnitude-small", 2), ("variance-low", 7)],
)
def test_fixed_places_are_a_square_in_the_top_left_corner(difficulty, side) -> None:
    places = coloured_places(difficulty, 3, (28, 28), np.random.default_rng(0))
    expected = np.zeros((3, 28, 28), bool)
    expected[:, :side, :side] = True
    np.testing.assert_array_equal(places, expected)


@pytest.mark.parametrize(("difficulty", "side"), [("variance-medium", 14), ("variance-high", 28)])
def test_moving_places_are_49_pixels_drawn_evenly_from_their_region(difficulty, side) -> None:
    places = coloured_places(difficulty, 2000, (28, 28), np.random.default_rng(0))
    assert (places.sum((1, 2)) == 49).all()
    assert not places[:, side:].any() and not places[:, :, side:].any()
    share = places[:, :side, :side].mean(0)
    expected = 49 / side**2
    assert np.abs(share - expected).max() < 5 * np.sqrt(expected / 2000)


def test_the_background_is_painted_and_the_digit_stays() -> None:
    images = np.array([[[0, 9], [0, 200]], [[0, 0], [7, 0]]], np.uint8)
    places = np.array([[[True, True], [False, True]], [[True, True], [True, True]]])
    painted = paint_background(images, places, np.array([1, 0]), np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    assert painted[0].tolist() == [[[4, 9], [0, 200]], [[5, 9], [0, 200]], [[6, 9], [0, 200]]]
    assert painted[1].tolist() == [[[1, 1], [7, 1]], [[2, 2], [7, 2]], [[3, 3], [7, 3]]]


def test_training_is_correlated_by_exact_counts_and_the_rest_takes_turns(tmp_path: Path) -> None:
    write_mnist(tmp_path, n_train=250, n_test=100)
    splits = load("spuco-mnist", tmp_path, validation=50, correlation=0.8)
    train = splits.train.group_counts().view(5, 5)
    assert torch.equal(train.diagonal(), (0.8 * train.sum(1)).round().long())
    for label in range(5):
        others = train[label][torch.arange(5) != label]
        assert others.max() - others.min() <= 1
    for part in (splits.validation, splits.test):
        assert part.attributes is not None
        assert torch.equal(part.attributes, torch.arange(len(part)) % 5)
    assert splits.train.group_names[6] == "2-3/lime"


def test_pixels_are_those_of_mnist_on_the_colour_of_the_group(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    grey = load("mnist", tmp_path, validation=10).train
    train = load("spuco-mnist", tmp_path, validation=10, correlation=0.5).train
    assert torch.equal(grey.ids, train.ids) and train.attributes is not None
    original = (grey.gather(torch.arange(30))[0] * 255).round()
    colour = torch.tensor(np.rint(PALETTES["distinct"].array(255)))[train.attributes][:, :, None, None]
    expected = torch.where(original == 0, colour, original)
    assert ((train.gather(torch.arange(30))[0] + 1) * 127.5 - expected).abs().max() < 0.51


def test_the_seed_decides_the_places_that_vary(tmp_path: Path) -> None:
    write_mnist(tmp_path)

    def pixels(seed: int) -> torch.Tensor:
        splits = load("spuco-mnist", tmp_path, validation=10, difficulty="variance-medium", seed=seed)
        return splits.test.gather(torch.arange(20))[0]

    assert torch.equal(pixels(0), pixels(0))
    assert not torch.equal(pixels(0), pixels(1))
