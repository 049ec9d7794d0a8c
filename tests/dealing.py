"""Which process runs which tests, as a plugin: a file's in one, the longest first.

What the tests of a file share (fixtures of its module, what its functions keep) is then made once, and the last file
to end is a short one. Files that name the same ``xdist_group`` are dealt out as one: two deployments of Flower at a
time would wait for each other. That is xdist's own ``--dist loadgroup``, whose names get lost in this version of
pytest: xdist 3.8 writes them to an attribute of items that pytest 9.2 no longer reads.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import DURATIONS

ROOT = Path(__file__).parents[1]
_NAMED = re.compile(r'^(?:\w+ = |@)pytest\.mark\.xdist_group\("(\w+)"\)', re.MULTILINE)


@cache
def unit(file: str) -> str:
    """What a file of tests is dealt out with: the group that it names, else the file itself."""
    path = ROOT / file
    named = _NAMED.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return named[1] if named else file


def seconds_by_unit() -> dict[str, float]:
    """What was measured of each unit; nothing of quick and of new ones."""
    seconds: dict[str, float] = defaultdict(float)
    for name, taken in (json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}).items():
        seconds[unit(name.partition("::")[0])] += taken
    return seconds


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of xdist, put the longest units first; the order within a unit stays.

    Groups come before all others: they wait more than they compute, and only computing is measured. What was never
    measured may be long, so it comes next. The last to begin are those that are known to be short.
    """
    if not hasattr(config, "workerinput"):
        return
    seconds = seconds_by_unit()

    def place(item: pytest.Item) -> tuple[int, float]:
        one = unit(item.nodeid.partition("::")[0])
        return (0 if not one.endswith(".py") else 1 if one not in seconds else 2), -seconds.get(one, 0.0)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out by `unit`, in the order of the collection, where ``--dist loadgroup`` asks for groups."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class UnitScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return UnitScheduling(config, log)
