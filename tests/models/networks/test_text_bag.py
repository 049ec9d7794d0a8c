import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.models.networks.text_bag import TextBag


@given(st.lists(st.lists(st.integers(1, 9), max_size=5), min_size=1, max_size=4), st.integers(0, 4))
def test_features_are_the_mean_of_the_words_whatever_the_padding(texts, padding):
    torch.manual_seed(0)
    model = TextBag((8,), 3, width=4, vocabulary=10)
    width = max(1, max(map(len, texts)) + padding)
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    weight = model.embedding.weight
    expected = torch.stack([weight[text].mean(0) if text else torch.zeros(4) for text in texts])
    torch.testing.assert_close(model.features(ids, mask), expected)
    torch.testing.assert_close(model.features(ids), expected)
    torch.testing.assert_close(model(ids, mask), model.head(expected))


def test_it_learns_which_word_decides():
    torch.manual_seed(0)
    ids = torch.randint(1, 50, (200, 6))
    labels = (ids == 7).any(1).long()
    ids[labels == 1, 0] = 7
    model = TextBag((6,), 2, vocabulary=50)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(ids), labels).backward()
        optimizer.step()
    assert (model(ids).argmax(1) == labels).float().mean() > 0.95
