import re
from zlib import crc32

import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.own.hashed_texts import VOCABULARY, HashedTexts

texts = st.lists(st.text(max_size=30), min_size=1, max_size=12)


def slow(text, most):
    words = re.findall(r"\w+|[^\w\s]", text.lower())[:most]
    return [crc32(word.encode("utf-8", "surrogatepass")) % (VOCABULARY - 1) + 1 for word in words]


@given(texts, st.integers(1, 9), st.data())
def test_a_batch_has_the_words_of_its_texts_and_no_more_padding_than_it_needs(texts, most, data):
    hashed = HashedTexts.of(texts, most)
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=8))
    batch = hashed.gather(torch.tensor(rows))
    expected = [slow(texts[row], most) for row in rows]
    assert batch["input_ids"].shape == (len(rows), max(1, *map(len, expected), 1))
    for ids, mask, words in zip(batch["input_ids"], batch["attention_mask"], expected, strict=True):
        assert ids[: len(words)].tolist() == words and not ids[len(words) :].any()
        assert mask.tolist() == [1] * len(words) + [0] * (len(mask) - len(words))


@given(texts, st.integers(1, 9))
def test_the_padded_table_has_the_same_words(texts, most):
    table = HashedTexts.of(texts, most).padded()
    assert table.shape == (len(texts), most)
    assert [[int(n) for n in row if n] for row in table] == [slow(text, most) for text in texts]


def test_an_empty_batch_is_as_wide_as_texts_may_be():
    assert HashedTexts.of(["a b", ""], 7).gather(torch.empty(0, dtype=torch.int64))["input_ids"].shape == (0, 7)


def test_numbers_of_words_stay_the_same_from_one_process_to_another():
    """A trained model depends on them; Python's own hashes of texts change."""
    assert HashedTexts.of(["Good, film"], 8).words.tolist() == [10141, 17703, 17070]
