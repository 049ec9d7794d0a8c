"""What a client remembers: whole, twice, and never trained twice on one round."""

import pytest
import torch

from holdfast.errors import CheckpointError, FederationError
from holdfast.integrations.flower.nodes.client_state import ClientMemory, ClientStates


def state(value: float, drawn: int = 0) -> ClientMemory:
    return ClientMemory({"ditto": torch.full((3,), value)}, drawn)


@pytest.fixture
def states(tmp_path):
    return ClientStates(tmp_path / "states")


def test_a_client_that_never_took_part_remembers_nothing(states):
    assert states.before(4, 0) is None
    assert states.last(4) is None


def test_the_last_two_rounds_are_kept(states):
    for number in (0, 3, 7):
        states.keep(4, number, state(number, 2 * number))

    assert states.rounds(4) == [3, 7]
    assert states.last(4).rows["ditto"].tolist() == [7.0] * 3
    assert states.last(4).drawn == 14


def test_a_repeated_round_starts_where_it_started_first(states):
    states.keep(4, 3, state(3))
    states.keep(4, 7, state(7))

    assert states.before(4, 7).rows["ditto"].tolist() == [3.0] * 3
    states.keep(4, 7, state(8))
    assert states.rounds(4) == [3, 7]
    assert states.before(4, 7).rows["ditto"].tolist() == [3.0] * 3


def test_a_first_round_that_is_repeated_starts_from_nothing(states):
    states.keep(4, 0, state(1))
    assert states.before(4, 0) is None


def test_a_stale_round_is_refused(states):
    states.keep(4, 7, state(7))
    with pytest.raises(FederationError, match="client 4 has finished round 8; round 7 is stale"):
        states.before(4, 6)


def test_a_write_that_fails_leaves_the_last_state_alone(states, monkeypatch):
    states.keep(4, 3, state(3))
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(CheckpointError, match="No space left"):
        states.keep(4, 4, state(4))
    monkeypatch.undo()
    assert states.rounds(4) == [3]
    assert states.last(4).rows["ditto"].tolist() == [3.0] * 3


def test_what_a_kill_left_half_written_is_no_state_and_is_cleared_away(states, tmp_path):
    states.keep(4, 3, state(3))
    half = tmp_path / "states" / "client-0000004" / ".after-00000004.safetensors.99.part"
    half.write_bytes(b"half")

    assert states.rounds(4) == [3]
    states.keep(4, 4, state(4))
    assert not half.exists()
