import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.data import load
from holdfast.data.sets.text.civilcomments import IDENTITIES, overlapping_groups, training_attribute
from holdfast.errors import DataError, MissingDependencyError
from tests.data.trees import write_comments, write_tokenizer

#: text, split, toxicity, the identities that are mentioned
COMMENTS: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("a kind\nword", "train", "0.0", ()),
    ("a rude word", "train", "0.5", ("male", "black")),
    ("a word", "train", "0.4999", ("black",)),
    ("kind, kind", "val", "0.1", ("female", "white")),
    ("rude", "test", "0.9", ("white",)),
    ("", "test", "0", ()),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A word-level tokenizer of six words, saved as a local folder."""
    return str(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), ("a", "kind", "rude", "word")))


def test_labels_and_overlapping_groups_need_no_tokenizer(tmp_path: Path) -> None:
    write_comments(tmp_path, COMMENTS)
    splits = load("civilcomments", tmp_path, check_counts=False, tokenizer="none/such")
    assert splits.train.labels.tolist() == [0, 1, 0]
    assert splits.test.labels.tolist() == [1, 0]
    assert splits.train.memberships is None
    assert splits.train.groups is not None and splits.train.groups.tolist() == [0, 3, 1]
    assert splits.train.group_names == ("civil/not black", "civil/black", "toxic/not black", "toxic/black")
    assert splits.validation.n_groups == 16
    counts = dict(zip(splits.validation.group_names, splits.validation.group_counts().tolist(), strict=True))
    assert {name: count for name, count in counts.items() if count} == {"civil/female": 1, "civil/white": 1}
    assert splits.test.ids.tolist() == [4, 5]


def test_memberships_are_the_slow_loop() -> None:
    rng = np.random.default_rng(0)
    labels, tags = rng.integers(2, size=30), rng.random((30, 8)) < 0.3
    for whole, columns in ((False, 16), (True, 18)):
        member, names = overlapping_groups(labels, tags, whole_classes=whole)
        assert member.shape == (30, columns) and len(names) == columns
        for i in range(30):
            wanted = {f"{('civil', 'toxic')[labels[i]]}/{IDENTITIES[t]}" for t in range(8) if tags[i, t]}
            wanted |= {f"{('civil', 'toxic')[labels[i]]}/all"} if whole else set()
            assert {names[g] for g in range(columns) if member[i, g]} == wanted


def test_partitions_are_black_any_or_joint() -> None:
    tags = np.zeros((3, 8), bool)
    tags[1, [0, 6]] = True
    tags[2, 1] = True
    assert training_attribute(tags, "black")[0].tolist() == [0, 1, 0]
    assert training_attribute(tags, "any")[0].tolist() == [0, 1, 1]
    codes, names = training_attribute(tags, "joint")
    assert [names[code] for code in codes] == ["none", "male+black", "female"]
    assert len(set(names)) == 256


def test_the_joint_partition_has_512_groups(tmp_path: Path) -> None:
    write_comments(tmp_path, COMMENTS)
    train = load("civilcomments", tmp_path, check_counts=False, partition="joint").train
    assert train.n_groups == 512
    assert train.groups is not None
    assert [train.group_names[g] for g in train.groups] == ["civil/none", "toxic/male+black", "civil/black"]


def test_comments_are_tokenised_and_padded_when_gathered(tmp_path: Path, tokenizer: str) -> None:
    write_comments(tmp_path, COMMENTS)
    splits = load("civilcomments", tmp_path, check_counts=False, tokenizer=tokenizer, max_tokens=4)
    batch, labels = splits.train.gather(torch.tensor([1, 0]))
    assert isinstance(batch, dict)
    assert batch["input_ids"].tolist() == [[2, 4, 5, 0], [2, 3, 5, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 0]]
    assert labels.tolist() == [1, 0]
    empty = splits.test.subset([1]).gather(torch.tensor([0]))[0]
    assert isinstance(empty, dict) and empty["attention_mask"].tolist() == [[0, 0, 0, 0]]


def test_long_comments_are_cut(tmp_path: Path, tokenizer: str) -> None:
    write_comments(tmp_path, COMMENTS)
    splits = load("civilcomments", tmp_path, check_counts=False, tokenizer=tokenizer, max_tokens=2)
    batch = splits.train.gather(torch.tensor([1]))[0]
    assert isinstance(batch, dict) and batch["input_ids"].tolist() == [[2, 4]]


def test_a_missing_tokenizer_or_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_comments(tmp_path, COMMENTS)
    train = load("civilcomments", tmp_path, check_counts=False, tokenizer=str(tmp_path)).train
    with pytest.raises(DataError, match=r"the tokenizer .* can't be loaded"):
        train.gather(torch.tensor([0]))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[transformers\]"):
        train.gather(torch.tensor([0]))


def test_other_sizes_than_the_published_are_refused(tmp_path: Path) -> None:
    write_comments(tmp_path, COMMENTS)
    with pytest.raises(DataError, match=r"published are .*269038"):
        load("civilcomments", tmp_path)


def test_a_toxicity_that_is_no_number_is_named_by_its_row(tmp_path: Path) -> None:
    write_comments(tmp_path, [*COMMENTS[:2], ("x", "train", "", ()), *COMMENTS[3:]])
    with pytest.raises(DataError, match="'' in column 'toxicity' of row 3"):
        load("civilcomments", tmp_path, check_counts=False)
