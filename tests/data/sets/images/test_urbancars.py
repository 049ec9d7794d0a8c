from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import describe, load
from holdfast.data.sets.images.urbancars import URBANCARS_COUNTS, shortcut_gaps
from holdfast.errors import DataError
from tests.data.trees import write_cars

SMALL = {"train": (6, 3, 3, 2, 2, 3, 3, 5), "validation": (1,) * 8, "test": (2, 1, 1, 1, 1, 1, 1, 1)}


@pytest.mark.parametrize("folder", ["urbancars", "urbancars_images"])
def test_a_group_is_a_car_on_a_background_beside_an_object(tmp_path: Path, folder: str) -> None:
    write_cars(tmp_path / folder, SMALL)
    splits = load("urbancars", tmp_path, check_counts=False)
    assert {part: tuple(counts.values()) for part, counts in describe(splits).items()} == SMALL
    assert splits.train.group_names[2] == "urban/country background, urban object"
    assert splits.train.labels.tolist() == [0] * 14 + [1] * 13
    assert splits.train.attributes is not None
    assert splits.train.attributes[14:].tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3]


def test_ids_are_unique_over_the_parts_and_images_have_the_wanted_size(tmp_path: Path) -> None:
    write_cars(tmp_path / "urbancars", SMALL)
    splits = load("urbancars", tmp_path, check_counts=False, size=8)
    ids = torch.cat([splits.train.ids, splits.validation.ids, splits.test.ids])
    assert len(torch.unique(ids)) == len(ids) == 44
    assert splits.test.gather(torch.tensor([8, 0]))[0].shape == (2, 3, 8, 8)


def test_other_counts_than_the_published_are_refused(tmp_path: Path) -> None:
    assert [sum(counts) for counts in URBANCARS_COUNTS.values()] == [8000, 1000, 1000]
    write_cars(tmp_path / "urbancars", SMALL)
    with pytest.raises(DataError, match="has 6 train examples of urban/urban background, urban object, published"):
        load("urbancars", tmp_path)


def test_a_missing_group_is_named(tmp_path: Path) -> None:
    write_cars(tmp_path / "urbancars", SMALL)
    gone = tmp_path / "urbancars/bg-0.5_co_occur_obj-0.5/val/obj-country_bg-urban_co_occur_obj-urban"
    for file in gone.iterdir():
        file.unlink()
    gone.rmdir()
    with pytest.raises(DataError, match=r"no folder .*/val/obj-country_bg-urban_co_occur_obj-urban"):
        load("urbancars", tmp_path, check_counts=False)


def test_gaps_are_those_of_the_slow_loop() -> None:
    accuracies = np.random.default_rng(0).random(8)
    weights = np.array(URBANCARS_COUNTS["train"])
    usual = float(weights @ accuracies / weights.sum())
    gaps = shortcut_gaps(accuracies.tolist())
    assert gaps["in_distribution"] == pytest.approx(usual)
    misled: dict[tuple[bool, bool], list[float]] = {}
    for group, accuracy in enumerate(accuracies):
        car, background, thing = group // 4, group // 2 % 2, group % 2
        misled.setdefault((background != car, thing != car), []).append(accuracy)
    for name, which in (("background", (True, False)), ("object", (False, True)), ("both", (True, True))):
        assert gaps[name] == pytest.approx(np.mean(misled[which]) - usual)
    with pytest.raises(DataError, match="eight groups and 4 accuracies"):
        shortcut_gaps([1.0] * 4)
