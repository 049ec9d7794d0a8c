from __future__ import annotations

import pytest
import torch

from holdfast.federated.engine.state import State


def fresh() -> State:
    counts = torch.zeros(4, dtype=torch.int64)
    return State(torch.zeros(3), {"momentum": torch.zeros(3)}, counts, counts.clone())


def test_a_state_goes_on_where_it_was_saved():
    saved = State(torch.ones(3), {"momentum": torch.ones(3)}, torch.arange(4), torch.arange(4), number=5, dropped=1)
    resumed = fresh().resumed({**saved.as_dict(), "choice": {"name": "serial"}})
    assert torch.equal(resumed.weights, saved.weights)
    assert torch.equal(resumed.drawn, saved.drawn)
    assert (resumed.number, resumed.dropped) == (5, 1)


@pytest.mark.parametrize(
    ("entry", "lie"),
    [
        ("drawn", torch.zeros(4)),  # batches are counted: a float fails when the next batch is drawn
        ("drawn", torch.zeros(5, dtype=torch.int64)),
        ("joined", torch.full((4,), -1)),
        ("weights", torch.zeros(3, dtype=torch.float64)),
        ("weights", None),
        ("server", {}),
        ("server", {"momentum": torch.zeros(1)}),
        ("number", 2.5),
        ("number", True),
        ("dropped", -1),
    ],
)
def test_a_state_of_another_kind_is_refused_before_the_first_round(entry, lie):
    with pytest.raises(ValueError):
        fresh().resumed({**fresh().as_dict(), entry: lie})
