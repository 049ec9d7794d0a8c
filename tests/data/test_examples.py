import threading

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from holdfast.data import Examples, LazyInputs, TensorInputs
from holdfast.data.readers.images import ImageReader
from holdfast.errors import DataError


def small() -> Examples:
    return Examples.of(
        torch.arange(12.0).view(6, 2),
        [0, 1, 2, 0, 1, 2],
        attributes=[0, 1, 0, 1, 0, 1],
        ids=[10, 11, 12, 13, 14, 15],
        sources=[7, 7, 7, 8, 8, 8],
    )


def test_groups_are_label_times_attribute() -> None:
    examples = small()
    assert examples.groups is not None
    assert examples.groups.tolist() == [0, 3, 4, 1, 2, 5]
    assert examples.group_names == ("y0/a0", "y0/a1", "y1/a0", "y1/a1", "y2/a0", "y2/a1")
    assert examples.group_counts().tolist() == [1] * 6


def test_examples_are_shown_by_how_many_there_are_and_not_by_their_tensors() -> None:
    shown = repr(Examples.of(torch.zeros(3, 2), [0, 1, 1], attributes=[0, 1, 0]))
    assert shown == "Examples(3 examples, 2 classes, 4 groups; TensorInputs)"


def test_a_subset_of_a_subset_keeps_ids_and_everything_aligned() -> None:
    examples = small()
    inner = examples.subset([5, 1, 3]).subset([2, 0])
    assert inner.ids.tolist() == [13, 15]
    assert inner.labels.tolist() == [0, 2]
    assert inner.sources is not None and inner.sources.tolist() == [8, 8]
    assert inner.groups is not None and inner.groups.tolist() == [1, 5]
    inputs, labels = inner.gather(torch.tensor([1, 0, 1]))
    assert torch.equal(inputs, torch.tensor([[10.0, 11.0], [6.0, 7.0], [10.0, 11.0]]))
    assert labels.tolist() == [2, 0, 2]
    assert inner.n_classes == 3 and inner.n_groups == 6


def test_memberships_may_overlap_and_name_the_groups() -> None:
    member = np.array([[1, 1], [0, 1], [1, 0]], bool)
    examples = Examples.of(torch.zeros(3, 1), [0, 1, 0], memberships=member, group_names=["a", "b"])
    assert examples.group_counts().tolist() == [2, 2]
    assert examples.subset([0]).group_counts().tolist() == [1, 1]


def test_with_groups_replaces_memberships() -> None:
    examples = Examples.of(torch.zeros(2, 1), [0, 1], memberships=np.ones((2, 3), bool))
    regrouped = examples.with_groups([1, 0], names=["few", "many"])
    assert regrouped.memberships is None
    assert regrouped.group_names == ("few", "many")
    assert regrouped.inputs is examples.inputs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": [0, 1, 2]}, r"labels have shape \(3,\) for 4 examples"),
        ({"labels": [0, 1, -1, 0]}, "label -1 of the example at position 2 is negative"),
        ({"labels": [0, 1, 5, 0], "class_names": ["a", "b"]}, "label 5 of the example at position 2 is out of range"),
        ({"labels": [0.0, 1.0, 0.5, 0.0]}, "labels must be whole numbers"),
        ({"labels": [0.0, 1.0, float("nan"), 0.0]}, "labels must be whole numbers"),
        ({"labels": [0, 1, 1000, 0]}, "3 of these 1,001 classes occur"),
        ({"labels": ["cat", 1, "cat", "dog"]}, "labels must be whole numbers"),
        ({"labels": ["cat", "cow", "cat", "dog"], "class_names": ["cat", "dog"]}, "'cow' is not among the names"),
        ({"labels": [[0], [1], [0], [1]]}, "give one integer per example"),
        ({"labels": None}, "labels are missing"),
        ({"labels": [0, 1, 0, 1], "attributes": [0, 1]}, "attributes have shape"),
        ({"labels": [0, 1, 0, 1], "attributes": [0, -2, 0, 1]}, "attribute -2 of the example at position 1"),
        ({"labels": [0, 1, 0, 1], "groups": [0, 1, 3, 0], "group_names": ["a", "b"]}, "group 3 .* is out of range"),
        ({"labels": [0, 1, 0, 1], "ids": [5, 6, 5, 5]}, "id 5 occurs 3 times"),
        ({"labels": [0, 1, 0, 1], "memberships": np.ones((3, 2), bool)}, "memberships have shape"),
    ],
)
def test_wrong_vectors_are_named(given: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Examples.of(torch.zeros(4, 2), **given)


def test_input_tensors_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match=r"different lengths \[2, 3\]"):
        Examples.of({"input_ids": torch.zeros(3, 1), "attention_mask": torch.zeros(2, 1)}, [0, 1, 0])


def test_inputs_that_cannot_be_indexed_are_refused() -> None:
    with pytest.raises(DataError, match="inputs of type generator"):
        Examples.of((x for x in [1]), [0])


def test_named_tensors_are_gathered_together() -> None:
    inputs = TensorInputs({"input_ids": torch.arange(6).view(3, 2), "attention_mask": torch.ones(3, 2)})
    batch = inputs.gather(torch.tensor([2, 0]))
    assert isinstance(batch, dict)
    assert batch["input_ids"].tolist() == [[4, 5], [0, 1]]


def test_named_tensors_have_the_shape_they_share() -> None:
    assert Examples.of({"a": torch.zeros(3, 2), "b": torch.ones(3, 2)}, [0, 1, 0]).input_shape == (2,)
    with pytest.raises(DataError, match=r"shapes \{'a': \(2,\), 'b': \(4,\)\}"):
        _ = Examples.of({"a": torch.zeros(3, 2), "b": torch.ones(3, 4)}, [0, 1, 0]).input_shape


def test_threads_gather_what_one_thread_gathers() -> None:
    stored = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    seen: set[str] = set()

    def read(position: int) -> torch.Tensor:
        seen.add(threading.current_thread().name)
        return stored[position]

    positions = torch.randint(50, (40,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(LazyInputs(read, 50, workers=3).gather(positions), stored[positions])
    assert not any(name == threading.main_thread().name for name in seen)
    assert torch.equal(LazyInputs(read, 50).gather(positions), stored[positions])


class CountingSet(Dataset):
    """A map-style set that counts its reads and fails at one position."""

    def __init__(self, broken: int | None = None) -> None:
        self.reads: list[int] = []
        self.broken = broken

    def __len__(self) -> int:
        return 5

    def __getitem__(self, position: int) -> tuple[torch.Tensor, int]:
        self.reads.append(position)
        if position == self.broken:
            raise OSError("image file is truncated")
        return torch.full((2,), float(position)), position % 2


def test_a_torch_dataset_is_read_once_for_labels_and_then_on_demand() -> None:
    source = CountingSet()
    examples = Examples.of(source)
    assert source.reads == [0, 1, 2, 3, 4]
    assert examples.labels.tolist() == [0, 1, 0, 1, 0]
    inputs, labels = examples.gather(torch.tensor([3, 1]))
    assert source.reads[5:] == [3, 1]
    assert torch.equal(inputs, torch.tensor([[3.0, 3.0], [1.0, 1.0]]))
    assert labels.tolist() == [1, 1]


def test_a_few_items_of_a_torch_dataset_with_given_labels_are_read_once() -> None:
    source = CountingSet()
    Examples.of(source, [0, 1, 0, 1, 0])
    assert source.reads == [0, 1, 2, 3, 4]  # of any number of items, see test_dataset_items.py


@pytest.mark.parametrize("workers", [0, 2])
def test_a_truncated_read_surfaces(workers: int) -> None:
    source = CountingSet(broken=3)
    examples = Examples.of(LazyInputs(lambda i: source[i][0], 5, workers), [0] * 5)
    examples.gather(torch.tensor([0, 1, 2]))
    with pytest.raises(OSError, match="truncated"):
        examples.gather(torch.tensor([2, 3]))


def test_the_shape_of_an_input_is_known_without_reading_one():
    def read(position):
        raise AssertionError

    assert Examples.of(LazyInputs(read, 5, shape=(3, 8, 8)), [0] * 5).subset([2, 4]).input_shape == (3, 8, 8)
    assert LazyInputs(lambda _: torch.zeros(2, 7), 5).gather(torch.empty(0, dtype=torch.int64)).shape == (0, 2, 7)


def test_the_shape_that_a_reader_promises_is_that_of_its_images(tmp_path):
    Image.new("RGB", (40, 30)).save(tmp_path / "image.png")
    for reader in (
        ImageReader(resize=20, crop=16),
        ImageReader(resize=20, crop=None),
        ImageReader(resize=None, crop=None),
    ):
        inputs = reader.inputs([tmp_path / "image.png"], workers=0)
        assert Examples.of(inputs, [0]).input_shape == tuple(inputs.gather(torch.tensor([0])).shape[1:])


@pytest.mark.parametrize(
    "nothing",
    [torch.zeros(0, 3), np.zeros((0, 3)), {"a": torch.zeros(0, 3)}, TensorDataset(torch.zeros(0, 3), torch.zeros(0))],
)
def test_nothing_is_refused_and_an_empty_part_of_something_is_not(nothing):
    with pytest.raises(DataError, match="there are no examples: the inputs are empty"):
        Examples.of(nothing, None if isinstance(nothing, Dataset) else [])
    some = Examples.of(torch.zeros(2, 3), [0, 1])
    assert len(some.subset([])) == 0
