import pytest
import torch

from holdfast.data import load
from holdfast.errors import DataError
from tests.data.trees import write_pairs, write_tokenizer

PARTS = {
    "train": [
        ("neutral", "a man eats", "a man eats soup"),
        ("-", "a man", "a dog"),
        ("contradiction", "a man eats", "a dog"),
        ("entailment", "a man eats soup", "a man eats"),
    ],
    "dev": [("entailment", "a dog eats", "a dog")],
    "test": [("neutral", "a dog", "a man"), ("contradiction", "a dog", "soup")],
}


@pytest.fixture
def root(tmp_path):
    write_tokenizer(tmp_path / "tokenizer", ("a", "man", "dog", "eats", "soup"))
    return write_pairs(tmp_path, PARTS)


def test_pairs_without_agreement_are_left_out_and_ids_are_line_numbers(root):
    splits = load("snli", root)
    assert splits.train.labels.tolist() == [1, 2, 0]
    assert splits.train.ids.tolist() == [0, 2, 3]
    assert splits.validation.ids.tolist() == [4]
    assert splits.test.ids.tolist() == [5, 6]
    assert splits.test.class_names == ("entailment", "neutral", "contradiction")


def test_pairs_are_tokenised_together_and_padded_to_the_longest(root):
    train = load("snli", root, tokenizer=str(root / "tokenizer")).train
    batch, _ = train.gather(torch.tensor([0, 1]))
    assert batch["input_ids"].shape == (2, 7)
    assert batch["attention_mask"].sum(1).tolist() == [7, 5]
    cut, _ = load("snli", root, tokenizer=str(root / "tokenizer"), max_tokens=4).train.gather(torch.tensor([0]))
    assert cut["input_ids"].shape == (1, 4)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "line 1 of .* isn't a pair of sentences"),
        ('{"gold_label": "neutral"}', "isn't a pair of sentences"),
        ('{"gold_label": "neutrl", "sentence1": "a", "sentence2": "b"}', "did you mean 'neutral'"),
        ('{"gold_label": "-", "sentence1": "a", "sentence2": "b"}', "no labelled pair"),
    ],
)
def test_what_is_no_pair_is_named(root, line, words):
    (root / "snli_1.0/snli_1.0_dev.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=words):
        load("snli", root)


def test_missing_files_say_where_to_get_them(tmp_path):
    with pytest.raises(DataError, match="run `holdfast data get snli`"):
        load("snli", tmp_path)
