from dataclasses import replace

import pytest

from holdfast.errors import ConfigError
from holdfast.papers.engine import kinds
from holdfast.papers.engine.experiment import Cell
from tests.papers.toy import add, reference

CELL = Cell("toy/a", "toy-add", {"base": 1, "marks": ["x"]})


def test_every_kind_is_a_function_that_can_be_imported():
    for kind in kinds.KINDS:
        assert callable(kinds.function_of(kind))


def test_no_two_kinds_are_one_function():
    assert len(set(kinds.KINDS.values())) == len(kinds.KINDS)


def test_a_reference_is_a_kind_of_its_own():
    assert kinds.function_of(reference(add)) is add


@pytest.mark.parametrize("bad", ["tests.papers.toy:nothing", "no.such.module:add", ":add"])
def test_a_reference_to_nothing_is_a_configuration_error(bad):
    with pytest.raises(ConfigError, match="module:function"):
        kinds.function_of(bad)


def test_an_unknown_kind_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        kinds.function_of("trian")


def test_moving_or_renaming_code_changes_no_key(monkeypatch):
    before = kinds.key_of(CELL)
    monkeypatch.setattr(kinds, "KINDS", {"toy-add": "somewhere.else_entirely:renamed"})
    assert kinds.key_of(CELL) == before


def test_a_key_is_of_kind_and_settings_and_of_nothing_else():
    assert kinds.key_of(replace(CELL, name="elsewhere/b", version=7, most_seeds=1)) == kinds.key_of(CELL)
    assert kinds.key_of(replace(CELL, settings={"marks": ["x"], "base": 1})) == kinds.key_of(CELL)
    assert kinds.key_of(replace(CELL, settings={**CELL.settings, "base": 2})) != kinds.key_of(CELL)
    assert kinds.key_of(replace(CELL, kind="another")) != kinds.key_of(CELL)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_settings_that_are_no_plain_values_are_refused_by_the_cells_name(value):
    with pytest.raises(ConfigError, match="toy/a"):
        kinds.key_of(replace(CELL, settings={"value": value}))
