"""Nobody is what he says: strangers, nodes that claim others' clients, takeovers after a restart, inflated counts."""

from __future__ import annotations

import pytest
import torch
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.app import Message
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from holdfast.errors import ConfigError, FederationError
from holdfast.federated.engine.selection import select
from holdfast.federated.settings import Rounds
from holdfast.integrations.flower.messages.wire import Request, packed
from holdfast.integrations.flower.operation.credentials import make_node_key
from holdfast.integrations.flower.roster import Roster, RosterNode, even_roster, token_of
from holdfast.integrations.flower.server.exchange import Exchange
from holdfast.integrations.flower.server.expecting import roster_of
from holdfast.integrations.flower.server.federation import roll
from holdfast.integrations.flower.server.members import Members
from holdfast.integrations.flower.server.questions import Answers, Question
from holdfast.integrations.flower.settings import FlowerSettings
from tests.integrations.flower.byte_grid import ByteGrid
from tests.integrations.flower.server.peers import Grid, Peer, ask

NAME = "0123456789abcdef" * 2


@pytest.fixture
def roster():
    return even_roster([token_of("north"), token_of("south")], [2, 2], most_examples=50)


def gathered(grid: Grid, members: Members, nodes: int | None = None, **settings) -> Exchange:
    exchange = Exchange(
        grid, FlowerSettings(nodes=nodes or len(grid.nodes), **{"timeout": 0.2, **settings}), NAME, members
    )
    exchange.gather()
    return exchange


def test_a_node_that_is_not_on_the_roster_gets_no_client_and_is_counted(roster):
    stranger = Peer("stranger", [0, 1, 2, 3])
    exchange = gathered(Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3]), n9=stranger), Members(roster), 2)
    assert sorted(ask(exchange, [0, 1, 2, 3])) == [0, 1, 2, 3]
    assert stranger.trained == []
    (fault,) = exchange.faults
    assert fault.kind == "refused" and "is not on the roster" in fault.reason


def test_a_node_whose_key_is_not_on_the_roster_is_not_even_asked(tmp_path):
    keys = {}
    for name in ("north", "stranger"):
        make_node_key(tmp_path / name)
        keys[name] = public_key_to_bytes(load_ssh_public_key((tmp_path / f"{name}.pub").read_bytes()))
    listed = Roster([RosterNode("north", (0,), 50, key=(tmp_path / "north.pub").read_text())])

    def north(message: Message) -> Message:
        request, head = Request.of(message.content), {"number": 0, "clients": [0]}
        if request.action == "census":
            assert (request.clients, request.total) == ((0,), 1)  # the roster tells a node which ids are its own
            counts = {part: [10] for part in ("train", "validation", "test")}
            head = {"clients": [0], "identity": "x", "classes": 2, "task": "classes", "shape": [3], **counts}
        return Message(packed(head, {}), reply_to=message)

    grid = ByteGrid({1: north, 2: north}, keys={1: keys["north"], 2: keys["stranger"]})
    exchange = gathered(grid, Members(listed), 1)
    assert list(ask(exchange, [0])) == [0]
    assert set(grid.asked) == {1}
    assert "node 2 is not on the roster and is not asked" in exchange.faults[0].reason


def test_a_node_that_claims_a_hundred_thousand_clients_gets_its_own_and_no_other(roster):
    """Sybil: one node claimed the ids from 12 on, and was the federation."""
    greedy = Peer("south", [2, 3, *range(12, 100_000)])
    exchange = gathered(Grid(n7=Peer("north", [0, 1]), n5=greedy), Members(roster))
    assert len(roll(exchange)) == 4
    assert sorted(exchange.members.facts) == [0, 1, 2, 3]
    assert "claims 99,988 clients of others" in exchange.faults[0].reason
    assert len(exchange.faults[0].reason) < 300


def test_a_node_that_claims_anothers_client_does_not_get_it_even_if_it_comes_first(roster):
    thief = Peer("south", [0, 1, 2, 3])
    grid = Grid(n5=thief)
    exchange = gathered(grid, Members(roster), 1)
    grid.nodes[7] = Peer("north", [0, 1])
    assert sorted(ask(exchange, [0, 1, 2, 3])) == [0, 1, 2, 3]
    assert set(thief.trained) == {2, 3}


@pytest.mark.parametrize("listed", [True, False])
def test_after_a_restart_of_the_server_a_stranger_can_not_take_clients_over(roster, tmp_path, listed):
    members = Members(roster if listed else None)
    members.keep_in(tmp_path)
    gathered(Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3])), members)

    again = Members(roster if listed else None)
    again.keep_in(tmp_path)
    thief, north = Peer("thief", [0, 1, 2, 3]), Peer("north", [0, 1])
    grid = Grid(n2=thief)
    exchange = Exchange(grid, FlowerSettings(nodes=1, timeout=0.2), NAME, again)
    exchange._look()
    exchange._collect(None)
    grid.nodes[8] = north
    got = ask(exchange, [0, 1, 2, 3])
    assert sorted(got) == [0, 1]
    assert thief.trained == [] and north.trained == [0, 1]


def test_after_a_restart_a_client_can_not_have_become_other_data(roster, tmp_path):
    members = Members(roster)
    members.keep_in(tmp_path)
    gathered(Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3])), members)
    again = Members(roster)
    again.keep_in(tmp_path)
    exchange = gathered(Grid(n7=Peer("north", [0, 1], train=[10, 11]), n5=Peer("south", [2, 3])), again)
    assert sorted(ask(exchange, [0, 1, 2, 3])) == [0, 2, 3]
    assert "client 1 came back with other data" in exchange.faults[0].reason


def test_an_expelled_node_stays_out_after_a_restart(roster, tmp_path):
    members = Members(roster, most_faults=1)
    members.keep_in(tmp_path)
    gathered(Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3])), members)
    assert members.strike("node-1")
    again = Members(roster, most_faults=1)
    again.keep_in(tmp_path)
    grid = Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3]))
    exchange = gathered(grid, again, 1)
    assert sorted(ask(exchange, [0, 1, 2, 3])) == [0, 1]


def test_a_roster_that_gives_a_client_to_another_node_is_refused_on_a_restart(roster, tmp_path):
    members = Members(roster)
    members.keep_in(tmp_path)
    gathered(Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3])), members)
    other = even_roster([token_of("north"), token_of("south")], [1, 3], 50)
    with pytest.raises(ConfigError, match=r"client 1 belonged to 'node-0' .* gives it to 'node-1'"):
        Members(other).keep_in(tmp_path)


def test_a_claim_of_two_to_the_forty_examples_counts_for_what_the_roster_allows(roster):
    """It was drawn in every round."""
    grid = Grid(n7=Peer("north", [0, 1], train=[2**40, 10]), n5=Peer("south", [2, 3]))
    exchange = gathered(grid, Members(roster))
    sizes = roll(exchange).train.counts
    assert sizes.tolist() == [50, 10, 10, 10]
    assert "claims 1,099,511,627,776 examples and counts for 50 at most" in exchange.faults[0].reason
    nobody = torch.zeros(4, dtype=torch.bool)
    settings = Rounds(cohort=1, sampling="examples")
    drawn = sum(int(select(settings, number, sizes, nobody)) == 0 for number in range(400)) / 400
    assert 0.53 < drawn < 0.72  # 50 of 80
    uniform = Rounds(cohort=1, sampling="uniform")
    drawn = sum(int(select(uniform, number, sizes, nobody)) == 0 for number in range(400)) / 400
    assert 0.17 < drawn < 0.33


def test_a_node_can_not_have_others_expelled_by_naming_them(roster):
    """A reply of the south says that clients of the north are bad; only its own are looked at."""
    exchange = gathered(Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3])), Members(roster, most_faults=1))

    def slander(asked, content):
        return Answers({}, dict.fromkeys([0, 1], "bad"), dict.fromkeys([0, 1], "bad")) if 2 in asked else fine(asked)

    def fine(asked):
        return Answers(dict.fromkeys(asked, "fine"))

    def make_request(some):
        return Request("train", NAME, 0, 4, tuple(some))

    for _ in range(3):
        assert sorted(exchange.ask(Question(0, make_request, slander), [0, 1, 2, 3])) == [0, 1]
    assert {client for fault in exchange.faults for client in fault.clients} == {2, 3}


def test_a_deployment_without_a_roster_is_refused_unless_that_is_asked_for():
    with pytest.raises(ConfigError, match="there is no roster, so any node could claim any client"):
        roster_of(FlowerSettings())
    assert roster_of(FlowerSettings(unlisted=True)) is None
    with pytest.raises(ConfigError, match="give one of them"):
        FlowerSettings(roster="roster.json", unlisted=True)


def test_a_node_that_says_why_it_does_not_join_is_quoted(roster):
    exchange = gathered(
        Grid(n7=Peer("north", [0, 1]), n5=Peer("south", [2, 3], refusal="the data here has 3 classes\x1b[2J")),
        Members(roster), 1,
    )  # fmt: skip
    assert "it does not join: the data here has 3 classes\\x1b[2J" in exchange.faults[0].reason


def test_nodes_do_not_vote_on_the_shape_of_the_data(roster, charter):
    """A majority of claimed ids decided the model's input shape: (10^6,)^8 crashed the server."""
    liars = Grid(n7=Peer("north", [0, 1], shape=[10**6] * 8), n5=Peer("south", [2, 3], shape=[10**6] * 8))
    with pytest.raises(FederationError, match="follows the charter"):
        gathered(liars, Members(roster, charter))
    same = {"charter": charter.digest}
    liars = Grid(n7=Peer("north", [0, 1], shape=[7], **same), n5=Peer("south", [2, 3], shape=[3], **same))
    exchange = gathered(liars, Members(roster, charter), 1)
    assert roll(exchange).input_shape == (3,)
    assert sorted(ask(exchange, [0, 1, 2, 3])) == [2, 3]


@pytest.fixture
def charter():
    from torch import nn

    from holdfast.data import Clients
    from holdfast.integrations.flower.charter import Charter, ModelIdentity

    data = Clients.of({"a": (torch.randn(20, 3), ["ill", "well"] * 10)})
    return Charter.of(nn.Linear(3, 2), ModelIdentity("softmax"), data)


def test_a_listed_node_that_is_refused_does_not_hold_the_start_up(roster):
    odd = Peer("south", [2, 3], refusal="the data here has 3 classes")
    exchange = gathered(Grid(n7=Peer("north", [0, 1]), n5=odd), Members(roster), timeout=60.0)
    assert sorted(exchange.attendance.holder) == [0, 1]


def test_strangers_do_not_make_the_start_happen_without_those_that_are_listed(roster):
    strangers = {f"n{place}": Peer(f"stranger {place}", [0]) for place in range(5)}
    with pytest.raises(FederationError, match=r"1 of 2 nodes reported their clients within 0\.2 seconds"):
        gathered(Grid(n7=Peer("north", [0, 1]), **{name: each for name, each in strangers.items() if name != "n7"}),
                 Members(roster), 2)  # fmt: skip
