from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.finetuning.suggestions import ENOUGH_STEPS, steps, suggest


def test_on_the_documents_data_the_settings_are_the_documents() -> None:
    found = suggest(262_040, 50_000, sources=14)
    assert (found.epochs.value, found.batch_size.value, found.clusters.value) == (3, 128, 100)
    assert found.points.value == 4  # eight units of a forward pass beside eighteen of training


@given(st.integers(1, 10**6), st.data())
def test_the_proxy_makes_enough_steps_wherever_the_data_allow_it(examples: int, data: st.DataObject) -> None:
    budget, sources = data.draw(st.integers(1, examples)), data.draw(st.integers(1, 20))
    found = suggest(examples, budget, sources=sources)
    made = steps(examples, found.batch_size.value, found.epochs.value)
    assert made >= ENOUGH_STEPS or (found.batch_size.value == 4 and found.epochs.value == 10)
    assert 4 <= found.batch_size.value <= 128
    assert 2 <= found.clusters.value <= 100
    assert 2 <= found.points.value <= 12
    assert all(one.reason for one in (found.epochs, found.batch_size, found.points, found.clusters))


def test_what_was_asked_for_stays() -> None:
    found = suggest(600, 300, epochs=1, batch_size=128)
    assert (found.epochs.value, found.batch_size.value) == (1, 128)
    assert "takes more than half" in found.points.reason


def test_a_part_that_is_trained_on_makes_recording_of_all_dearer() -> None:
    assert suggest(100_000, 10, trained=50_000).points.value < suggest(100_000, 10).points.value


def test_nothing_to_choose_from() -> None:
    with pytest.raises(ConfigError, match="0 examples of 1 sources"):
        suggest(0, 1)
