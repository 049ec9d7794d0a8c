"""The documents' experiments take nothing from today's defaults of the library."""

import ast
import importlib
import inspect
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import holdfast.papers
from holdfast.errors import ConfigError
from holdfast.papers.engine import pins

FOLDER = Path(holdfast.papers.__file__).parent

#: Options that decide no number: where data lie, what is printed, on what it runs.
HARMLESS = {"root", "listener", "run", "progress", "device", "workers", "threads", "cache", "called", "name", "source"}

#: Calls whose omitted options are left to the library, with the reason.
LEFT_ALONE = json.loads(Path(__file__).with_name("unpinned.json").read_text())


@pytest.fixture
def pinned_in(tmp_path, monkeypatch):
    """A file of pins of the test's own."""

    def put(content):
        (tmp_path / "pins.json").write_text(json.dumps(content))
        monkeypatch.setattr(pins, "PINS", tmp_path / "pins.json")
        pins.read_pins.cache_clear()
        return tmp_path / "pins.json"

    yield put
    monkeypatch.undo()
    pins.read_pins.cache_clear()


@dataclass
class Toy:
    needed: int
    rate: float = 0.5
    steps: tuple[int, ...] = field(default_factory=lambda: (1, 2))
    more: object = field(default_factory=object)


HERE = pins.name_of(Toy)


def test_a_changed_default_does_not_reach_what_is_pinned(pinned_in, monkeypatch):
    pinned_in({HERE: {"rate": 0.25, "steps": [3]}})
    built = pins.pinned(Toy, needed=1)
    assert (built.rate, built.steps) == (0.25, (3,))
    assert pins.pinned(Toy, needed=1, rate=2.0).rate == 2.0


def test_an_option_that_is_neither_given_nor_pinned_is_refused(pinned_in):
    pinned_in({HERE: {"rate": 0.25}})
    with pytest.raises(ConfigError, match="Toy has an option 'steps'"):
        pins.pinned(Toy, needed=1)
    assert pins.pinned(Toy, needed=1, steps=(7,)).steps == (7,)


def test_pinning_adds_what_is_missing_and_changes_nothing_that_is_there(pinned_in):
    file = pinned_in({HERE: {"rate": 0.25}, "Other": {"x": 1}})
    pins.pin([Toy])
    assert json.loads(file.read_text()) == {"Other": {"x": 1}, HERE: {"rate": 0.25, "steps": [1, 2]}}


def calls_of(module):
    """Calls in a module of something imported from the library, as (line, what, names of the given options)."""
    tree = ast.parse(Path(module.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            target = getattr(module, node.func.id, None)
            home = getattr(target, "__module__", "") or ""
            elsewhere = home.startswith(("holdfast.papers", "holdfast.report", "holdfast.errors"))
            if home.startswith("holdfast.") and not elsewhere:
                yield node, target


def omitted(node, target):
    """Options with a plain default that a call leaves to the library; nothing (None, no items) is left out of all."""
    if any(keyword.arg is None for keyword in node.keywords):
        return []  # given as a mapping, which `options` made, or the settings of a cell
    names = list(inspect.signature(target).parameters)
    given = {keyword.arg for keyword in node.keywords} | set(names[: len(node.args)])
    something = {option for option, value in pins.defaults(target).items() if value is not None and value != []}
    return sorted(something - given - HARMLESS)


MODULES = sorted(
    ".".join(file.relative_to(FOLDER).with_suffix("").parts)
    for file in FOLDER.rglob("*.py")
    if file.stem != "__init__" and file.parent.name != "engine"
)


@pytest.mark.parametrize("name", MODULES)
def test_cells_leave_no_option_to_the_library(name):
    module = importlib.import_module(f"holdfast.papers.{name}")
    found = {}
    for node, target in calls_of(module):
        if left := omitted(node, target):
            found.setdefault(target.__name__, []).append(f"line {node.lineno} leaves {', '.join(left)}")
    unexplained = {what: lines for what, lines in found.items() if what not in LEFT_ALONE}
    assert unexplained == {}, "build it by pinned(...), give the option, or say in unpinned.json why not"


def test_every_exception_has_its_reason_and_is_needed():
    needed = set()
    for name in MODULES:
        module = importlib.import_module(f"holdfast.papers.{name}")
        needed |= {target.__name__ for node, target in calls_of(module) if omitted(node, target)}
    assert set(LEFT_ALONE) <= needed
    assert all(len(reason) > 10 for reason in LEFT_ALONE.values())


def test_every_pin_is_of_something_that_takes_it():
    """Pins of options that are gone would be an error when a cell is run; they are found here first."""
    takers = {}
    for name in MODULES:
        for value in vars(importlib.import_module(f"holdfast.papers.{name}")).values():
            if inspect.isclass(value) and (value.__module__ or "").startswith("holdfast."):
                takers[pins.name_of(value)] = value
    for name, kept in pins.read_pins().items():
        if name in takers:
            assert set(kept) <= set(inspect.signature(takers[name]).parameters), name
