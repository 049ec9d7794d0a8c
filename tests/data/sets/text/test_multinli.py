import logging
import re
import string
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data import describe, load
from holdfast.data.sets.text import multinli
from holdfast.data.sets.text.multinli import MULTINLI_COUNTS, has_negation
from holdfast.errors import DataError
from tests.data.trees import write_csv, write_multinli, write_tokenizer

PARTS = {
    "train": [
        ("neutral", "a man eats", "a man never eats soup"),
        ("-", "a man", "a dog"),
        ("contradiction", "a man eats", "Nobody eats."),
        ("entailment", "a man eats soup", "a man eats"),
        ("contradiction", "a dog", "there is no, no dog"),
    ],
    "dev_matched": [("entailment", "a dog eats", "a dog"), ("-", "a", "b"), ("neutral", "a dog", "it knows nothing")],
    "dev_mismatched": [("neutral", "a dog", "a man"), ("contradiction", "a dog", "none"), ("entailment", "a", "a")],
}
LABELS = [2, 0, 1, 0, 1, 2, 2, 0, 1]
NEGATED = [1, 1, 0, 1, 0, 1, 0, 0, 0]
LINES = [0, 2, 3, 4, 5, 7, 8, 9, 10]
SPLIT = [0, 0, 1, 2, 0, 2, 1, 0, 2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_multinli(tmp_path, PARTS)


def write_split(root: Path, labels=LABELS, negated=NEGATED, lines=LINES, folder: str = "multinli") -> None:
    rows = [list(row) for row in zip(lines, labels, negated, SPLIT, strict=False)]
    write_csv(root / folder / "metadata_random.csv", ["", "gold_label", "sentence2_has_negation", "split"], rows)


@pytest.mark.parametrize("folder", ["multinli", "multinli_1.0"])
def test_the_split_of_group_dro_is_read_by_line_numbers_through_all_files(root: Path, folder: str) -> None:
    write_split(root, folder=folder)
    splits = load("multinli", root, check_counts=False)
    for code, part in enumerate((splits.train, splits.validation, splits.test)):
        rows = [at for at, value in enumerate(SPLIT) if value == code]
        assert part.ids.tolist() == [LINES[at] for at in rows]
        assert part.labels.tolist() == [LABELS[at] for at in rows]
        assert part.attributes is not None and part.attributes.tolist() == [NEGATED[at] for at in rows]
        assert part.class_names == ("contradiction", "entailment", "neutral")
    assert list(describe(splits)["train"]) == [
        "contradiction/no negation", "contradiction/negation", "entailment/no negation", "entailment/negation",
        "neutral/no negation", "neutral/negation",
    ]  # fmt: skip


def test_the_order_of_the_rows_in_the_split_does_not_matter(root: Path) -> None:
    write_split(root)
    expected = [part.ids.tolist() for part in parts(load("multinli", root, check_counts=False))]
    header, *rows = (root / "multinli/metadata_random.csv").read_text().splitlines()
    (root / "multinli/metadata_random.csv").write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert [part.ids.tolist() for part in parts(load("multinli", root, check_counts=False))] == expected


def parts(splits):
    return splits.train, splits.validation, splits.test


def test_published_sizes_are_checked_where_the_published_split_is_there(root: Path, monkeypatch) -> None:
    write_split(root)
    with pytest.raises(DataError, match="has 1 train examples of contradiction/no negation, published are 57498"):
        load("multinli", root)
    counted = describe(load("multinli", root, check_counts=False))
    counts = {part: tuple(groups.values()) for part, groups in counted.items()}
    monkeypatch.setattr(multinli, "MULTINLI_COUNTS", counts)
    load("multinli", root)


def test_the_published_sizes_add_up_to_all_labelled_pairs() -> None:
    totals = {part: sum(counts) for part, counts in MULTINLI_COUNTS.items()}
    assert totals == {"train": 206_175, "validation": 82_462, "test": 123_712}
    assert sum(totals.values()) == 392_702 + 9_815 + 9_832


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": [0, *LABELS[1:]]}, r"another gold_label for pair 0 .*neutral"),
        ({"negated": [*NEGATED[:-1], 1]}, "another sentence2_has_negation for pair 10"),
        ({"lines": LINES[:-1]}, "about 8 other pairs than the 9"),
        ({"lines": [1, *LINES[1:]]}, "other pairs"),
        ({"labels": [7, *LABELS[1:]]}, "'7' in column 'gold_label' of row 1; it must be an integer from 0 to 2"),
    ],
)
def test_a_split_of_other_pairs_is_refused(root: Path, changed, message: str) -> None:
    write_split(root, **changed)
    with pytest.raises(DataError, match=message):
        load("multinli", root, check_counts=False)


def test_without_the_published_split_a_seed_decides_and_says_so(tmp_path: Path, caplog) -> None:
    pairs = [("neutral", "a", f"b {n}") for n in range(100)]
    write_multinli(tmp_path, {"train": pairs[:80], "dev_matched": pairs[:10], "dev_mismatched": pairs[:10]})
    with caplog.at_level(logging.WARNING):
        one, same, other = (load("multinli", tmp_path, seed=seed) for seed in (3, 3, 4))
    assert "50/20/30 by seed 3" in caplog.text
    assert [len(part) for part in parts(one)] == [50, 20, 30]
    assert sorted(np.concatenate([part.ids for part in parts(one)]).tolist()) == list(range(100))
    assert one.train.ids.tolist() == same.train.ids.tolist() != other.train.ids.tolist()


def test_pairs_are_tokenised_together(root: Path) -> None:
    write_split(root)
    write_tokenizer(root / "tokenizer", ("a", "man", "eats"))
    train = load("multinli", root, check_counts=False, tokenizer=str(root / "tokenizer")).train
    batch, labels = train.gather(torch.tensor([0]))
    assert batch["input_ids"].shape == (1, 8) and labels.tolist() == [2]


@given(st.text(alphabet=string.ascii_letters + string.punctuation + " \t", max_size=40))
def test_a_negation_is_one_of_four_whole_words(sentence: str) -> None:
    bare = "".join(letter for letter in sentence.lower() if letter not in string.punctuation)
    found = re.search(r"(?:^| )(?:nobody|no|never|nothing)(?= |$)", bare)
    assert has_negation(sentence) == bool(found)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [("No.", 1), ("I know", 0), ("n.o!", 1), ("don't", 0), ("NEVER, ever", 1), ("is nothing", 1), ("none", 0), ("", 0)],
)
def test_what_counts_as_a_negation(sentence: str, expected: int) -> None:
    assert has_negation(sentence) == expected


@pytest.mark.parametrize("line", ['{"gold_label": "neutral", "sentence1": 3, "sentence2": "b"}', "[]", "\xff", "3"])
def test_what_is_no_pair_is_named(root: Path, line: str) -> None:
    (root / "multinli_1.0/multinli_1.0_train.jsonl").write_bytes(line.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match=r"line 1 of .* isn't a pair of sentences"):
        load("multinli", root)
