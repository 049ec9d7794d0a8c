import numpy as np
import pytest
import torch

from holdfast.data import Examples
from holdfast.errors import DataError
from holdfast.report.html.images import as_picture, example_sheet
from holdfast.training import GroupReport
from tests.report.reading import read_page


def pixels(picture):
    return np.asarray(picture).astype(int)


def test_colours_between_0_and_1_are_kept():
    image = torch.rand(3, 8, 6)
    expected = (image.permute(1, 2, 0).numpy() * 255).round()
    assert np.abs(pixels(as_picture(image)) - expected).max() <= 1


def test_bytes_are_kept():
    image = torch.randint(0, 256, (3, 8, 6), dtype=torch.uint8)
    assert np.array_equal(pixels(as_picture(image)), image.permute(1, 2, 0).numpy())


def test_normalised_images_are_stretched_over_the_whole_range():
    found = pixels(as_picture(torch.randn(3, 8, 6)))
    assert (found.min(), found.max()) == (0, 255)


@pytest.mark.parametrize(("shape", "mode"), [((8, 6), "L"), ((1, 8, 6), "L"), ((2, 8, 6), "RGB"), ((3, 8, 6), "RGB")])
def test_one_two_and_three_channels_are_pictures(shape, mode):
    picture = as_picture(torch.rand(shape))
    assert (picture.mode, picture.size) == (mode, (6, 8))


@pytest.mark.parametrize("shape", [(10,), (7, 8, 8), (3, 2, 50), (2, 3, 8, 8)])
def test_other_shapes_are_no_pictures(shape):
    assert as_picture(torch.rand(shape)) is None


def test_an_even_picture_outside_the_range_is_no_error():
    assert pixels(as_picture(torch.full((3, 8, 8), -3.0))).max() == 0


def test_large_pictures_are_made_smaller():
    assert max(as_picture(torch.rand(3, 400, 300)).size) == 192


def predictions_of(examples, predicted):
    predicted = torch.as_tensor(predicted)
    confidence = torch.linspace(0.5, 0.9, len(predicted))
    columns = {"id": examples.ids, "label": examples.labels, "predicted": predicted, "confidence": confidence}
    report = GroupReport.of(predicted, examples)
    return report, {name: column.numpy() for name, column in columns.items()}


def labelled(inputs, **more):
    n = len(inputs["ids"]) if isinstance(inputs, dict) else len(inputs)
    return Examples.of(inputs, torch.arange(n) % 2, ids=100 + torch.arange(n).flip(0), **more)


def test_the_sheet_shows_the_worst_group_wrong_and_right_surest_first():
    test = labelled(torch.rand(6, 1, 8, 8), class_names=["cat", "dog"])
    report, columns = predictions_of(test, [0, 0, 0, 1, 0, 0])
    wrong, right = read_page(example_sheet(report, columns, test)).all("ul")
    assert [item.text for item in wrong.all("li")] == ["dog → cat90.0%, id 100", "dog → cat58.0%, id 104"]
    assert [item.text for item in right.all("li")] == ["dog74.0%, id 102"]
    assert wrong.all("img")[0].attributes["alt"] == "example 100, dog, taken for cat with confidence 90.0%"


def test_the_sheet_finds_examples_by_id_whatever_their_order():
    images = torch.rand(6, 3, 8, 8)
    test = labelled(images)
    report, columns = predictions_of(test, [0, 0, 0, 1, 0, 0])
    shuffled = test.subset([3, 1, 5, 0, 2, 4])
    assert example_sheet(report, columns, shuffled) == example_sheet(report, columns, test)


def test_overlapping_groups_are_looked_up_in_the_memberships():
    member = torch.tensor([[1, 0], [1, 1], [1, 0], [1, 1]], dtype=torch.bool)
    test = labelled(torch.rand(4, 8, 8), memberships=member, group_names=["all", "some"])
    report, columns = predictions_of(test, [0, 0, 0, 0])
    wrong, right = read_page(example_sheet(report, columns, test)).all("ul")
    assert (len(wrong.all("li")), len(right.all("li"))) == (2, 0)


@pytest.mark.parametrize("inputs", [torch.rand(4, 12), {"ids": torch.ones(4, 7), "mask": torch.ones(4, 7)}])
def test_inputs_that_are_no_images_are_said_to_be_none(inputs):
    test = labelled(inputs)
    report, columns = predictions_of(test, [0, 0, 0, 1])
    assert "aren't images" in read_page(example_sheet(report, columns, test)).text


def test_another_data_set_is_refused():
    test = labelled(torch.rand(4, 8, 8))
    report, columns = predictions_of(test, [0, 0, 0, 1])
    columns["id"] = columns["id"] + 1
    with pytest.raises(DataError, match="id 104 and the label it had"):
        example_sheet(report, columns, test)
