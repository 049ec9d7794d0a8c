"""A node answers from its disk: again after a restart, the same to a repeated order, never to a stale one."""

import pytest
import torch

from holdfast.cli.commands.federation.blueprint import blueprint_of
from holdfast.errors import ConfigError, DataError
from holdfast.integrations.flower.messages.wire import Request, array, head_of, wholes, words
from holdfast.integrations.flower.nodes.holdings import picked, placed
from holdfast.integrations.flower.nodes.ids import parse_ids, share_of
from holdfast.integrations.flower.nodes.node import Node
from tests.federated.toy import toy_clients
from tests.integrations.flower.small_federation import digest, options_of

NAME = "0123456789abcdef" * 2
TOTAL, SIZE = 16, 650


@pytest.fixture
def options():
    return options_of("--personalize", "ditto+finetuning", "--ditto.lambda", "0.5", "--finetuning.epochs", "1")


@pytest.fixture
def ask(options, tmp_path):
    """Asks a node of clients 4 to 7, a new process for all it knows, and returns the reply."""

    def ask(action, number=0, clients=(4, 5), labels=(), part=""):
        node = Node(blueprint_of(options), {"state": str(tmp_path), "clients": "4-7"}, NAME)
        request = Request(action, NAME, number, TOTAL, clients, labels, part, torch.zeros(SIZE))
        return node.answer(request, request.pack())

    return ask


def updates(reply, rows=2):
    return array(reply, "updates", (rows, SIZE), torch.float32)


def files(folder):
    return {path.relative_to(folder): digest(path) for path in folder.rglob("after-*")}


def test_a_repeated_round_gives_the_same_reply_and_trains_nothing_twice(ask, tmp_path):
    ask("train", 0)
    first, after_first = ask("train", 3), files(tmp_path)
    again, after_again = ask("train", 3), files(tmp_path)

    assert torch.equal(updates(first), updates(again))
    assert after_first == after_again
    assert not torch.equal(updates(first), updates(ask("train", 4)))


def test_stale_rounds_and_clients_of_other_nodes_are_refused_one_by_one(ask, tmp_path):
    ask("train", 7, clients=(4,))
    before = files(tmp_path)

    head = head_of(ask("train", 6, clients=(3, 4, 5)))

    assert wholes(head, "clients") == [5]
    assert dict(zip(wholes(head, "refused"), words(head, "reasons"), strict=True)) == {
        3: "this node does not have client 3",
        4: "client 4 has finished round 8; round 7 is stale",
    }
    assert before.items() <= files(tmp_path).items()


def test_tuned_models_are_kept_beside_the_others_and_tuned_once(ask, tmp_path):
    ask("train", 0)
    ask("tune", 200, labels=("finetuning",))
    before = files(tmp_path)
    ask("tune", 200, labels=("finetuning",))

    assert files(tmp_path) == before
    reply = ask("score", 200, labels=("", "ditto-0.5", "finetuning"), part="test")
    loss = array(reply, "loss", (3, 2), torch.float64)
    assert len({*loss[:, 0].tolist()}) == 3


def test_scores_are_of_the_personal_models_that_there_are(ask):
    ask("train", 0, clients=(4,))
    reply = ask("score", 0, clients=(4, 5), labels=("", "ditto-0.5"), part="test")

    loss = array(reply, "loss", (2, 2), torch.float64)
    assert loss[0, 0] != loss[1, 0]
    assert loss[0, 1] == loss[1, 1]


def test_a_node_without_a_place_or_without_clients_says_so(options, tmp_path):
    with pytest.raises(ConfigError, match="no place for personal models"):
        Node(blueprint_of(options), {}, NAME)
    with pytest.raises(ConfigError, match="did not report which clients it hosts"):
        Node(blueprint_of(options), {"state": str(tmp_path)}, NAME).holdings  # noqa: B018
    with pytest.raises(ConfigError, match="does not say whose"):
        Node(blueprint_of(options), {"state": str(tmp_path), "data": "here"}, NAME).holdings  # noqa: B018


def test_ids_are_read_as_administrators_write_them():
    assert parse_ids("0-3, 7") == [0, 1, 2, 3, 7]
    assert parse_ids("5") == [5]
    for wrong in ("", "a", "3-", "1,1", "4-2"):
        with pytest.raises(ConfigError):
            parse_ids(wrong)


def test_shares_are_all_clients_once():
    assert sorted(client for node in range(3) for client in share_of(f"{node}/3", 10)) == list(range(10))
    with pytest.raises(ConfigError, match='share="0/8"'):
        share_of("3/3", 10)


def test_clients_keep_their_examples_in_the_federation_s_numbering():
    whole = toy_clients()
    some = placed(picked(whole, [2, 5]), [2, 5], len(whole))

    assert len(some) == len(whole)
    for client in range(len(whole)):
        inputs, labels = some.train.of(client)
        theirs = whole.train.of(client)
        assert torch.equal(inputs, theirs[0] if client in (2, 5) else theirs[0][:0])
        assert torch.equal(labels, theirs[1] if client in (2, 5) else theirs[1][:0])
    with pytest.raises(DataError, match="name one id per client"):
        placed(picked(whole, [2, 5]), [2], len(whole))
