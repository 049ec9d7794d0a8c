"""A roster says who may take part; what is in its file is checked before anybody is asked."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.integrations.flower.nodes.ids import parse_ids
from holdfast.integrations.flower.operation.credentials import make_node_key
from holdfast.integrations.flower.roster import FORMAT, Roster, RosterNode, even_roster, spelled, token_of


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("north", "south"):
        make_node_key(folder / name)
    return {name: (folder / f"{name}.pub").read_text() for name in ("north", "south")}


def plain(keys, **north):
    first = {"name": "north", "key": keys["north"], "clients": "0-2", **north}
    second = {"name": "south", "key": keys["south"], "clients": 2, "most_examples": 7}
    return {"format": FORMAT, "most_examples": 100, "nodes": [first, second]}


def test_a_number_of_clients_gets_the_lowest_ids_that_nobody_else_has(keys):
    roster = Roster.from_plain(plain(keys, clients="0,2"))
    assert roster.host(0).name == roster.host(2).name == "north"
    assert roster.nodes[1].clients == (1, 3)
    assert [node.most_examples for node in roster.nodes] == [100, 7]
    assert (len(roster), roster.largest(1), roster.largest(2)) == (4, 2, 4)


def test_a_node_is_known_by_its_key_however_it_is_written_and_by_no_other(keys, tmp_path):
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    roster = Roster.from_plain(plain(keys))
    as_flower_keeps_it = public_key_to_bytes(load_ssh_public_key(keys["north"].encode()))
    assert roster.of_key(as_flower_keeps_it).name == "north"
    make_node_key(tmp_path / "stranger")
    stranger = load_ssh_public_key((tmp_path / "stranger.pub").read_bytes())
    assert roster.of_key(public_key_to_bytes(stranger)) is None
    assert roster.of_key(b"") is None and roster.of_key(b"\xff" * 10_000) is None


def test_a_node_with_a_token_is_known_by_its_secret(tmp_path):
    roster = even_roster([token_of("one"), token_of("two")], [2, 3], 50)
    assert roster.of_secret("two").clients == (2, 3, 4)
    assert roster.of_secret("three") is None and roster.of_secret("") is None
    roster.save(tmp_path / "roster.json")
    assert Roster.load(tmp_path / "roster.json").nodes == roster.nodes


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "north\x1b[2J"}, "name"),
        ({"name": "south"}, "'south' is on the roster 2 times"),
        ({"key": "ssh-rsa nonsense"}, "isn.t a public key"),
        ({"token": "0" * 64}, "must have a key"),
        ({"key": "", "token": "abc"}, "64 hexadecimal digits"),
        ({"clients": "0-9999999999"}, "clients"),
        ({"clients": 0}, "as clients"),
        ({"clients": True}, "as clients"),
        ({"clients": [0, 0]}, "ids differ"),
        ({"clients": "5-6"}, "nobody on the roster hosts client 2"),
        ({"most_examples": 2**41}, "most_examples"),
        ({"most_examples": "many"}, "most_examples"),
        ({"admin": True}, "does not know"),
    ],
)
def test_what_can_not_be_is_refused_with_a_sentence(keys, change, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Roster.from_plain(plain(keys, **change))


def test_two_nodes_can_not_have_one_key_or_one_client(keys):
    with pytest.raises(ConfigError, match="the key"):
        Roster.from_plain(plain(keys, key=keys["south"]))
    with pytest.raises(ConfigError, match="client 1 is on the roster 2 times"):
        Roster([RosterNode("a", (0, 1), 5, token="0" * 64), RosterNode("b", (1,), 5, token="1" * 64)])


@pytest.mark.parametrize("content", ["", "[]", "{", "3", '{"format": "x"}', "[" * 100_000, '{"nodes": 1e999}'])
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_that_is_no_roster_is_refused(tmp_path, content, suffix):
    (tmp_path / f"roster.{suffix}").write_text(content)
    with pytest.raises(ConfigError):
        Roster.load(tmp_path / f"roster.{suffix}")
    with pytest.raises(ConfigError, match="can't be read"):
        Roster.load(tmp_path / f"none.{suffix}")


def test_yaml_and_json_say_the_same(keys, tmp_path):
    content = plain(keys)
    (tmp_path / "roster.json").write_text(json.dumps(content))
    (tmp_path / "roster.yaml").write_text(json.dumps(content))
    assert Roster.load(tmp_path / "roster.json").nodes == Roster.load(tmp_path / "roster.yaml").nodes


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ids_are_spelled_as_they_are_parsed(ids):
    assert parse_ids(spelled(sorted(ids))) == sorted(ids)
