from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import load
from holdfast.data.sets.images.coloured import (
    PALETTES,
    TWO_COLOURS,
    correlated_colours,
    paint_foreground,
    shifted_copies,
    tint,
)
from holdfast.data.sets.images.digits import bundled_digits
from holdfast.errors import ConfigError
from tests.data.readers.test_idx import write_mnist


def cells(labels: np.ndarray, colours: np.ndarray, k: int) -> np.ndarray:
    table = np.zeros((k, k), int)
    np.add.at(table, (labels, colours), 1)
    return table


def test_the_share_of_the_class_colour_is_exact_and_minorities_are_even() -> None:
    labels = np.repeat(np.arange(5), [100, 200, 300, 400, 500])
    table = cells(labels, correlated_colours(labels, 5, 0.9, np.random.default_rng(0), (1, 1, 1, 1)), 5)
    assert np.diag(table).tolist() == [90, 180, 270, 360, 450]
    for label in range(5):
        others = np.delete(table[label], label)
        assert others.max() - others.min() <= 1


def test_minorities_follow_a_ratio_cyclically_from_the_class() -> None:
    labels = np.repeat(np.arange(5), 1500)
    table = cells(labels, correlated_colours(labels, 5, 0.9, np.random.default_rng(0), (8, 4, 2, 1)), 5)
    for label in range(5):
        assert np.roll(table[label], -label).tolist() == [1350, 80, 40, 20, 10]


def test_random_minorities_are_uniform_over_the_other_colours() -> None:
    labels = np.zeros(40_000, int)
    counts = np.bincount(correlated_colours(labels, 5, 0.5, np.random.default_rng(0)), minlength=5)
    assert counts[0] == 20_000
    assert np.abs(counts[1:] - 5000).max() < 5 * np.sqrt(20_000 * 0.25 * 0.75)


@pytest.mark.parametrize("correlation", [0.0, 1.0])
def test_the_extremes_of_correlation(correlation: float) -> None:
    labels = np.repeat([0, 1], 50)
    colours = correlated_colours(labels, 2, correlation, np.random.default_rng(0), (1,))
    assert ((colours == labels) == bool(correlation)).all()


@pytest.mark.parametrize(
    ("correlation", "ratio", "n_colours", "message"),
    [
        (1.5, (), 5, "the correlation is 1.5"),
        (0.9, (1, 2), 5, "a share for each of the 4 other colours"),
        (0.9, (1, 0, -1, 2), 5, "a share for each of the 4 other colours"),
        (0.9, (), 4, "class 4 has no colour of its own"),
    ],
)
def test_senseless_colourings_are_refused(correlation: float, ratio: tuple, n_colours: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        correlated_colours(np.arange(5), n_colours, correlation, np.random.default_rng(0), ratio)


def test_painting_is_the_slow_loop_over_pixels() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(4, 3, 5), dtype=np.uint8)
    images[0, 0, :2] = 119, 120
    colours, palette = np.array([1, 0, 1, 1]), np.array([[255, 0, 7], [0, 200, 3]], np.uint8)
    painted = paint_foreground(images, colours, palette)
    assert painted.dtype == np.uint8
    for i in range(4):
        for r in range(3):
            for c in range(5):
                grey = images[i, r, c]
                assert painted[i, :, r, c].tolist() == (palette[colours[i]].tolist() if grey >= 120 else [grey] * 3)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_tinting_is_the_slow_loop_over_images(kind: type) -> None:
    rng = np.random.default_rng(0)
    images = (rng.random((4, 3, 5)) * (255 if kind is np.uint8 else 1)).astype(kind)
    colours, palette = np.array([1, 0, 1, 1]), np.array([[1, 0, 0.5], [0, 0.8, 1]])
    tinted = tint(images, colours, palette)
    assert tinted.dtype == kind
    for i in range(4):
        for channel in range(3):
            expected = images[i] * palette[colours[i], channel]
            np.testing.assert_allclose(tinted[i, channel], expected, atol=0.51 if kind is np.uint8 else 1e-6)


def test_every_image_is_at_every_place_once() -> None:
    images = np.random.default_rng(0).random((3, 2, 4)).astype(np.float32)
    copies = shifted_copies(images)
    assert copies.shape == (27, 4, 6)
    for i in range(3):
        for down in range(3):
            for right in range(3):
                expected = np.pad(images[i], ((down, 2 - down), (right, 2 - right)))
                np.testing.assert_array_equal(copies[9 * i + 3 * down + right], expected)


def test_palettes_are_the_papers() -> None:
    as_hex = ["#" + bytes(row).hex() for row in np.rint(PALETTES["dissertation"].array(255)).astype(np.uint8)]
    assert as_hex == ["#ff0000", "#85ff00", "#00fff3", "#6e00ff", "#ff0018"]
    np.testing.assert_allclose(TWO_COLOURS.array(1), [[1, 0, 0], [0.02, 1, 0]], atol=1e-9)
    distinct = PALETTES["distinct"].array(1)
    distances = np.linalg.norm(distinct[:, None] - distinct, axis=-1) + 9 * np.eye(5)
    assert distances.min() > 0.5


def test_two_class_coloured_digits_follow_the_protocol() -> None:
    splits = load("coloured-digits", seed=1)
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [9900, 2700, 3573]
    originals = [set((part.ids // 9).tolist()) for part in (splits.train, splits.validation, splits.test)]
    assert [len(part) for part in originals] == [1100, 300, 397]
    assert not (originals[0] & originals[1] | originals[0] & originals[2] | originals[1] & originals[2])
    table = splits.train.group_counts().view(2, 2)
    assert torch.equal(table.diagonal(), (0.95 * table.sum(1)).round().long())
    assert splits.train.group_names == ("0-4/red", "0-4/green", "5-9/red", "5-9/green")
    assert 4 * int(table.min()) in range(900, 1040)
    uniform = splits.test.group_counts().view(2, 2) / splits.test.class_counts()[:, None]
    assert (uniform - 0.5).abs().max() < 0.05


def test_a_coloured_digit_is_intensity_times_colour_of_the_shifted_original() -> None:
    images, digits = bundled_digits()
    for name, palette, classes in (
        ("coloured-digits", TWO_COLOURS, digits >= 5),
        ("coloured-digits5", PALETTES["distinct"], digits // 2),
    ):
        part = load(name).validation
        assert part.attributes is not None
        batch, labels = part.gather(torch.arange(len(part)))
        for position in range(0, len(part), 211):
            original, place = divmod(int(part.ids[position]), 9)
            down, right = divmod(place, 3)
            grey = np.pad(images[original], ((down, 2 - down), (right, 2 - right)))
            expected = grey * palette.array(1)[part.attributes[position]][:, None, None]
            np.testing.assert_allclose(batch[position], expected, atol=1e-6)
            assert labels[position] == classes[original]


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({}, [1750, 13, 13, 13, 13], [2150, 17, 17, 17, 17]),
        ({"correlation": 0.92, "minority_ratio": (8, 4, 2, 1)}, [1650, 75, 38, 19, 9], [2050, 95, 48, 24, 12]),
        ({"correlation": 0.99, "palette": "dissertation"}, [1750, 4, 4, 4, 4], [2200, 6, 6, 6, 6]),
    ],
)
def test_five_class_coloured_digits_have_the_protocols_cells(options: dict, low: list, high: list) -> None:
    train = load("coloured-digits5", **options).train
    table = train.group_counts().view(5, 5).numpy()
    for label in range(5):
        own_first = np.roll(table[label], -label)
        assert (own_first >= low).all() and (own_first <= high).all()
    assert train.group_names[0] == "0-1/red" and len(set(train.group_names)) == 25


def test_the_seed_decides_the_colours_and_nothing_global() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first, again, other = (load("coloured-digits", seed=seed).train.attributes for seed in (0, 0, 1))
    assert first is not None and again is not None and other is not None
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("colouring", ["foreground", "intensity"])
def test_cmnist5_colours_mnist_and_keeps_bytes_in_memory(tmp_path: Path, colouring: str) -> None:
    write_mnist(tmp_path)
    splits = load("cmnist5", tmp_path, validation=10, colouring=colouring, correlation=0.8)
    assert splits.train.inputs.values.dtype == torch.uint8
    batch, labels = splits.train.gather(torch.arange(30))
    assert batch.shape == (30, 3, 28, 28) and batch.dtype == torch.float32
    assert batch.min() >= -1 and batch.max() <= 1
    assert torch.equal(labels, splits.train.ids % 10 // 2)
    grey = load("mnist", tmp_path, validation=10).train
    assert torch.equal(grey.ids, splits.train.ids)
    assert splits.train.attributes is not None
    original = (grey.gather(torch.arange(30))[0] * 255).round()
    colour = torch.tensor(np.rint(PALETTES["distinct"].array(255)))[splits.train.attributes][:, :, None, None]
    bright = original >= 120
    expected = torch.where(bright, colour, original) if colouring == "foreground" else original * colour / 255
    assert ((batch + 1) * 127.5 - expected).abs().max() < 0.51


@pytest.mark.shared_data
def test_cmnist5_has_the_papers_cells(shared_data: Path) -> None:
    splits = load("cmnist5", shared_data)
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [50_000, 10_000, 10_000]
    table = splits.train.group_counts().view(5, 5)
    assert torch.equal(table.diagonal(), (0.995 * table.sum(1)).round().long())
    assert abs(float(table.diagonal().float().mean()) - 9950) < 1
    minorities = table[~torch.eye(5, dtype=torch.bool)]
    assert abs(float(minorities.float().mean()) - 12.5) < 0.2
    assert minorities.min() >= 2 and minorities.max() <= 30
    even = load("cmnist5", shared_data, minority_ratio=(1, 1, 1, 1)).train.group_counts().view(5, 5)
    assert even.min() >= 11 and even[~torch.eye(5, dtype=torch.bool)].max() <= 14
    for part in (splits.validation, splits.test):
        share = part.group_counts().view(5, 5) / part.class_counts()[:, None]
        assert (share - 0.2).abs().max() < 0.05
    assert splits.train.group_names[0] == "0-1/red"
