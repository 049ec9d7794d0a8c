import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holdfast.data import Examples
from holdfast.data.dataset_items import DatasetInputs, labels_of
from holdfast.errors import DataError


def image(value=0, size=(4, 4), mode="RGB"):
    return Image.new(mode, size, value if mode == "L" else (value, value, value))


@given(st.lists(st.integers(0, 4) | st.booleans(), min_size=1, max_size=30))
def test_labels_of_any_whole_type_are_these_numbers(labels):
    for kind in (int, torch.tensor, np.int64, np.float32, lambda y: torch.tensor([float(y)])):
        dataset = [(torch.zeros(2), kind(label)) for label in labels]
        assert labels_of(DatasetInputs(dataset)) == [int(label) for label in labels]


def test_words_are_classes_in_the_order_of_the_alphabet():
    examples = Examples.of([{"x": torch.zeros(2), "label": word} for word in ("b", "a", "b")])
    assert examples.class_names == ("a", "b") and examples.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ((torch.zeros(2), 0.5), "label of item 1 .* is 0.5, which isn't a class: regression"),
        ((torch.zeros(2), torch.tensor(1.5)), "regression"),
        ((torch.zeros(2), float("nan")), "is nan, which isn.t a class"),
        ((torch.zeros(2), float("inf")), "is inf, which isn.t a class"),
        ((torch.zeros(2), torch.tensor([0, 1])), r"shape \(2,\) .several labels"),
        ((torch.zeros(2), np.zeros((4, 4))), r"one per token or pixel"),
        ((torch.zeros(2), None), "is None, which isn.t a class"),
        ((torch.zeros(2), [1, 2]), "several labels"),
        ((torch.zeros(2), {"a": 1}), "which isn.t a class"),
        ((torch.zeros(2), "word"), "some labels of the data set are words"),
        ((torch.zeros(2),), "item 1 of the data set has no label"),
        ({"x": torch.zeros(2)}, "no label"),
        ({"label": 1}, "no input besides label"),
        (torch.zeros(2), "Tensor|no label"),
        (None, "no label|NoneType"),
        ((torch.zeros(3), 0), r"items 0 and 1 have shapes \(2,\) and \(3,\) and can't be stacked; give collate="),
        ((torch.tensor([0.0, float("nan")]), 0), "input of item 1 of the data set has NaN"),
        ((np.array([np.inf, 0]), 0), "NaN or infinite"),
    ],
)
def test_an_item_that_can_t_be_used_is_named_before_training(item, says):
    with pytest.raises(DataError, match=says):
        Examples.of([(torch.zeros(2), 0), item])


def test_a_label_of_a_thousand_among_sixty_examples_is_refused():
    with pytest.raises(DataError, match="the labels go up to 1000, and 2 of these 1,001 classes occur"):
        Examples.of([(torch.zeros(2), 1000 * (i == 3)) for i in range(60)])


def test_pil_images_are_channels_first_between_0_and_1_whatever_their_mode():
    examples = Examples.of([{"image": image(255), "label": 0}, {"image": image(0, mode="L"), "label": 1}])
    inputs, _ = examples.gather(torch.tensor([0, 1]))
    assert inputs.shape == (2, 3, 4, 4) and inputs[0].min() == 1 and inputs[1].max() == 0
    assert examples.input_shape == (3, 4, 4)


def test_images_of_two_sizes_are_refused():
    with pytest.raises(DataError, match="can't be stacked"):
        Examples.of([(image(), 0), (image(size=(5, 4)), 1)])


def test_named_inputs_are_stacked_by_name_and_other_entries_left_out():
    dataset = [{"ids": torch.tensor([i, i]), "mask": np.ones(2), "label": i % 2, "sex": i} for i in range(4)]
    inputs = DatasetInputs(dataset, leave_out=("sex",)).gather(torch.tensor([3, 1]))
    assert set(inputs) == {"ids", "mask"} and inputs["ids"].tolist() == [[3, 3], [1, 1]]


@given(st.lists(st.integers(1, 6), min_size=2, max_size=12))
def test_a_collate_function_makes_batches_of_any_lengths(lengths):
    def collate(parts):
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)

    dataset = [(torch.full((length,), float(i + 1)), i % 2) for i, length in enumerate(lengths)]
    examples = Examples.of(dataset, collate=collate)
    inputs, labels = examples.gather(torch.arange(len(lengths)))
    assert inputs.shape == (len(lengths), max(lengths)) and labels.tolist() == [i % 2 for i in range(len(lengths))]
    assert [int((row > 0).sum()) for row in inputs] == lengths


def test_a_text_is_refused_with_what_to_give():
    with pytest.raises(DataError, match="is a text; give token ids"):
        Examples.of([("a text", 0), ("another", 1)]).gather(torch.tensor([0]))


class _Items(list):
    """Items of which some can't be read."""

    def __getitem__(self, position):
        item = super().__getitem__(position)
        if isinstance(item, Exception):
            raise item
        return item


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (torch.zeros(2), "item 59 of the data set is a Tensor; give tuples"),
        (("a text", 0), "item 59 of the data set is a text"),
        ((torch.zeros(3), 0), r"have shapes \(2,\) and \(3,\) and can't be stacked; give collate="),
        ((torch.tensor([0.0, float("nan")]), 0), "item 59 of the data set has NaN"),
        (FileNotFoundError("cat.png"), "item 59 of the 60 of the data set can't be read .FileNotFoundError: cat.png"),
        (IndexError("out"), "item 59 of the 60 of the data set can't be read"),
    ],
)
def test_where_labels_are_given_some_items_are_looked_at_before_training(item, says):
    items = _Items([(torch.zeros(2), 0)] * 59 + [item])
    with pytest.raises(DataError, match=says):
        Examples.of(items, [0, 1] * 30)


def test_given_labels_need_few_items_to_be_read():
    class Counted(list):
        read = 0

        def __getitem__(self, position):
            Counted.read += 1
            return super().__getitem__(position)

    examples = Examples.of(Counted([(torch.zeros(2), 0)] * 1000), [0, 1] * 500)
    assert examples.input_shape == (2,) and Counted.read <= 6
