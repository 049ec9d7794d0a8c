"""Chats of an installed package as clients; the package is one of the development requirements."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data import load_federation
from holdfast.data.sets.federated import chitchat
from holdfast.data.sets.federated.chitchat import features, places, read_chats, vocabulary
from holdfast.errors import ConfigError, DataError, MissingDependencyError

INSTALLED = importlib.util.find_spec("chitchat_dataset") is not None
needs_chats = pytest.mark.skipif(not INSTALLED, reason="chitchat-dataset is not installed")
SMALL = {"senders": 6, "messages": 40, "words": 60, "classes": 12}


def _said(sender: str, minute: int, text: str) -> dict[str, str]:
    return {"text": text, "timestamp": f"2018-05-02T19:{minute:02}:00Z", "sender": sender}


@pytest.fixture
def chats(tmp_path, monkeypatch):
    """Two people, whose second chat is written before the first."""
    told = {
        "b": {
            "messages": [
                [_said("ann", 30, "You're late, Bo!")],
                [_said("bo", 31, "..."), _said("bo", 32, "so are you")],
            ]
        },
        "a": {"messages": [[_said("bo", 1, "hello")], [_said("ann", 2, "Hello you")]]},
    }
    (tmp_path / "dataset.json").write_text(json.dumps(told))
    monkeypatch.setattr(chitchat, "packaged_folder", lambda module, missing: tmp_path)
    return tmp_path


def test_messages_are_words_in_the_order_of_time(chats):
    assert read_chats(chats / "dataset.json") == {
        "ann": [["hello", "you"], ["you're", "late", "bo"]],
        "bo": [["hello"], ["so", "are", "you"]],
    }


def test_words_are_ranked_by_frequency_and_then_by_spelling():
    assert vocabulary([["b", "c", "b"], ["a", "c", "d"]], 3) == {"b": 0, "c": 1, "a": 2}
    with pytest.raises(DataError, match="5 words were asked for and the training messages have 4; give fewer"):
        vocabulary([["b", "c", "b"], ["a", "c", "d"]], 5)


def test_a_place_is_where_a_class_stands_and_knows_only_what_is_before_it():
    ranks = {"i": 0, "am": 1, "here": 2}
    assert list(places([["i", "am", "not", "here", "am"]], ranks, classes=2)) == [([], 0), ([0], 1), ([0, 1, 3, 2], 1)]


@given(st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=5))
def test_features_are_the_last_word_and_the_shares_of_all(before):
    """Against counting by hand; ranks of 5 and more are unknown words."""
    for row, earlier in zip(features(before, 5), before, strict=True):
        last = np.zeros(6)
        if not earlier or earlier[-1] < 5:
            last[earlier[-1] if earlier else 5] = 1
        shares = [earlier.count(word) / max(len(earlier), 1) for word in range(5)]
        assert np.allclose(row, [*last, *shares])


@needs_chats
def test_a_client_is_a_sender_whose_later_messages_are_the_test():
    clients = load_federation("chitchat", **SMALL)
    assert len(clients) == 6 and clients.classes == 12 and clients.input_shape == (121,)
    folder = Path(str(importlib.util.find_spec("chitchat_dataset").submodule_search_locations[0]))
    written = read_chats(folder / "dataset.json")
    mine = [written[name][:40] for name in clients.names]
    assert min(map(len, written.values())) <= len(written[clients.names[-1]]) <= len(written[clients.names[0]])
    ranks = vocabulary([message for own in mine for message in own[:29]], 60)
    for client, own in enumerate(mine):
        for part, messages in ((clients.train, own[:29]), (clients.validation, own[29:32]), (clients.test, own[32:])):
            expected = list(places(messages, ranks, 12))
            inputs, labels = part.of(client)
            assert labels.tolist() == [label for _, label in expected]
            assert torch.equal(inputs, torch.from_numpy(features([before for before, _ in expected], 60)))


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a": 1}', '{"a": {"messages": [[{"text": "x"}]]}}', '{"a": {"messages": [["x"]]}}']
)
def test_another_file_is_a_sentence(chats, content):
    (chats / "dataset.json").write_text(content)
    with pytest.raises(DataError, match=r"is not the file of chitchat-dataset 0\.9\.0 .* again"):
        load_federation("chitchat")


def test_more_senders_than_there_are_is_a_sentence(chats):
    with pytest.raises(DataError, match="3 senders were asked for and there are 2; give fewer"):
        load_federation("chitchat", senders=3)


def test_a_missing_package_is_answered_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'holdfast\[chitchat\]'"):
        load_federation("chitchat")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"classes": 1}, "1 classes can't be guessed among 500 words"),
        ({"words": 50}, "100 classes can't be guessed among 50 words"),
        ({"senders": 0}, "0 senders with 100 messages each are no federation"),
        ({"messages": 9}, "100 senders with 9 messages each are no federation"),
    ],
)
def test_options_are_checked(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_federation("chitchat", **options)
