"""Damaged replies never end a round; `python -m tests.soak.messages` runs ten thousand."""

import logging

import pytest

from tests.soak import messages
from tests.soak.messages import Case

EACH = 300


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    for name in ("_SHORTEST", "_LONGEST", "_LOOK"):
        monkeypatch.setattr(messages.exchange_module, name, getattr(messages.exchange_module, name))
    logging.getLogger("holdfast.federated.flower").setLevel(logging.ERROR)
    yield
    logging.getLogger("holdfast.federated.flower").setLevel(logging.NOTSET)


@pytest.mark.soak
def test_a_damaged_reply_costs_its_node_the_round_and_nobody_else_anything(seed):
    case = Case()
    outcomes = [case.run(EACH * seed + number) for number in range(EACH)]
    assert set(outcomes) <= {"counted", "refused", "failed", "silent", "lost"}
    assert outcomes.count("refused") > EACH // 2
