"""Dataclasses as the options of a command."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from holdfast.cli.common.sections import (
    Section,
    check_configuration,
    configuration,
    data_section,
    named_data,
    nearest_place,
    options_of,
    parse_sections,
)
from holdfast.data.catalog import DATASETS
from holdfast.errors import ConfigError


@dataclass(frozen=True)
class Top:
    """What stands at the top.

    Attributes:
        epochs: how many.
        out: where to.
    """

    epochs: int = 3
    out: Path | None = None


@dataclass(frozen=True)
class Inner:
    """A part of a part."""

    size: int = 1


@dataclass(frozen=True)
class Part:
    """What has a section of its own.

    Attributes:
        lambda_: a word that Python keeps for itself.
        inner: a part of it.
    """

    lambda_: float = 0.5
    inner: Inner = Inner()
    _made: int = field(default=0, init=False)


def parsed(*words: str) -> dict[str, object]:
    sections = {"a top": Section(Top, Top), "a part": Section(Part, partial(Part, lambda_=2.0), "part")}
    return parse_sections(words, sections, program="command", about="About it.")


def test_fields_are_options_with_the_defaults_that_were_given():
    assert parsed() == {"a top": Top(), "a part": Part(2.0)}
    given = parsed("--epochs", "7", "--part.lambda", "0.1", "--part.inner.size", "4")
    assert given == {"a top": Top(7), "a part": Part(0.1, Inner(4))}
    assert {type(value) for value in given.values()} == {Top, Part}


def test_a_section_without_a_default_comes_last_or_first_and_is_asked_for(capsys):
    sections = {"top": Section(Top, Top), "data": data_section(DATASETS["folder"], None)}
    with pytest.raises(SystemExit):
        parse_sections([], sections, program="command", about="")
    assert "--folder.path" in capsys.readouterr().err
    assert parse_sections(["--folder.path", "x"], sections, program="command", about="")["data"].path == Path("x")


def test_a_configuration_holds_what_determines_a_run_in_plain_values():
    held = configuration(Top(5, Path("runs/mine")), sections={"part": Part(), "nothing": Nothing()})
    assert held == {"epochs": 5, "part": {"lambda": 0.5, "inner": {"size": 1}}}
    assert options_of(Part()) == held["part"]


@dataclass(frozen=True)
class Nothing:
    """A part without options."""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 1}, r"an unknown key 'epoch'; did you mean 'epochs'\?"),
        ({"part": {"lamda": 1}}, r"an unknown key part.lamda; did you mean 'lambda'\?"),
        ({"out": "runs/mine"}, "an unknown key 'out'"),
    ],
)
def test_a_key_that_nothing_reads_is_refused(settings, message):
    check_configuration({"epochs": 1, "part": {"lambda": 2}}, [Top], {"part": Part}, "run.yaml")
    with pytest.raises(ConfigError, match=message):
        check_configuration(settings, [Top], {"part": Part}, "run.yaml")


def test_data_are_a_name_or_a_folder(tmp_path):
    assert named_data("digits", DATASETS) == (DATASETS["digits"], None)
    assert named_data(str(tmp_path), DATASETS) == (DATASETS["folder"], tmp_path.resolve())
    with pytest.raises(ConfigError, match=r"no folder 'digit' for nothing; did you mean 'digits'\?"):
        named_data("digit", DATASETS, " for nothing")


def test_a_mistyped_place_is_offered_the_file_beside_it_and_a_mistyped_name_the_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("arrests.csv").touch()
    assert nearest_place("arests.csv", DATASETS) == "; did you mean 'arrests.csv'?"
    assert nearest_place("cifar11", DATASETS) == "; did you mean 'cifar10'?"
    assert nearest_place("nowhere/arests.csv", ["digits"]) == "; known are digits"
