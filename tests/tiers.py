"""Three tiers of tests, as a plugin: what is quick (`make check`), everything (`make test`), and what never ends.

*Slow* is measured, not guessed. ``tests/durations.json`` has the seconds of processor time of every test that needs
half a second or more, children included, so that a busy machine changes nothing; ``make durations`` writes it anew.
A test of `SLOW` seconds gets the marker ``slow`` when it is collected, a new one counts as quick until it is measured.
A setup that takes as long counts for the whole file: a fixture that tests share is paid by whichever runs first.

*Soak* is the third tier. Property tests of hypothesis and tests with the marker ``soak`` run once in `make test`; with
``--soak MINUTES`` they run again and again, with new random numbers each time, until the minutes are over. A soak test
takes its random numbers from the fixture ``seed`` and nowhere else, so ``--seed`` repeats the round that failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

DURATIONS = Path(__file__).with_name("durations.json")
LAST_SOAK = Path(__file__).parents[1] / "results" / "soak" / "last.log"
SLOW = 1.0  # seconds of processor time
MENTIONED = 0.5  # what takes less is not written down

PHASES, ROUNDS, SEED = "processor seconds", "soak rounds", "soak seed"

settings.register_profile("test", deadline=None, derandomize=True, max_examples=50)
settings.register_profile(
    "soak", deadline=None, database=None, max_examples=100, suppress_health_check=list(HealthCheck)
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--measure", action="store_true", help="write tests/durations.json anew for the tests that run")
    group.addoption("--soak", type=float, metavar="MINUTES", help="repeat soak and property tests for so long")
    group.addoption("--seed", type=int, default=0, help="of the one round of soak tests that runs without --soak")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("test" if config.getoption("--soak") is None else "soak")
    config.pluginmanager.register(Measured(config), "measured durations")


# --------------------------------------------------------------------------------------------------------------- slow


def plain_id(item: pytest.Item) -> str:
    """The id without the name of the group that xdist appends to it."""
    group = item.get_closest_marker("xdist_group")
    return item.nodeid.removesuffix(f"@{group.args[0]}") if group and group.args else item.nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    for item in items:
        name = plain_id(item)
        if max(seconds.get(name, 0), seconds.get(name.split("::")[0], 0)) >= SLOW:
            item.add_marker("slow")
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("soak")
    config.stash[soaking] = sum(item.get_closest_marker("soak") is not None for item in items)


def _processor_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _measured(item: pytest.Item, phase: str) -> Iterator[Any]:
    started = _processor_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append((PHASES, [plain_id(item), phase, _processor_seconds() - started]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
    return (yield from _measured(item, "setup"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    return (yield from _measured(item, "call"))


# --------------------------------------------------------------------------------------------------------------- soak

soaking = pytest.StashKey[int]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of the random numbers of a round; a new one for each where a soak test is repeated."""
    return int(request.config.getoption("--seed"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    minutes = pyfuncitem.config.getoption("--soak")
    if minutes is None or pyfuncitem.get_closest_marker("soak") is None:
        return None
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = 60 * minutes * workers / pyfuncitem.config.stash[soaking]
    names = pyfuncitem._fixtureinfo.argnames
    end, rounds = time.monotonic() + share, 0
    while rounds == 0 or time.monotonic() < end:
        rounds += 1
        pyfuncitem.user_properties[:] = [one for one in pyfuncitem.user_properties if one[0] not in {ROUNDS, SEED}]
        pyfuncitem.user_properties.append((ROUNDS, rounds))
        if "seed" in names:
            pyfuncitem.funcargs["seed"] = SystemRandom().randrange(2**31)
            pyfuncitem.user_properties.append((SEED, pyfuncitem.funcargs["seed"]))
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    return True


# ---------------------------------------------------------------------------------------------- what the run leaves


class Measured:
    """Gathers what the reports of all processes say and writes it down when the last test has ended."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or (report.when == "setup" and report.failed):
            self.reports.append(report)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workerinput"):
            return
        if self.config.getoption("--measure"):
            self._write_durations()
        if self.config.getoption("--soak") is not None:
            LAST_SOAK.parent.mkdir(parents=True, exist_ok=True)
            LAST_SOAK.write_text(self._soak_log())

    def _write_durations(self) -> None:
        seconds: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
        measured = [value for report in self.reports for name, value in report.user_properties if name == PHASES]
        for name in {name for name, _, _ in measured}:
            seconds.update({name: 0.0, name.split("::")[0]: 0.0})
        for name, phase, taken in measured:
            key = name if phase == "call" else name.split("::")[0]
            seconds[key] = max(seconds[key], taken)
        kept = {name: round(taken, 1) for name, taken in sorted(seconds.items()) if taken >= MENTIONED}
        DURATIONS.write_text(json.dumps(kept, indent=0) + "\n")

    def _soak_log(self) -> str:
        command = ["git", "describe", "--always", "--dirty"]
        found = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parent)
        failures = sum(report.failed for report in self.reports)
        lines = [
            f"commit {found.stdout.strip() or 'unknown'}, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
            f"{self.config.getoption('--soak'):g} minutes, {len(self.reports)} tests, {failures} failures",
            f"a round of a property test is {settings.get_profile('soak').max_examples} examples",
            "",
        ]
        for report in sorted(self.reports, key=lambda report: report.nodeid):
            kept = dict(report.user_properties)
            end = "FAILED" if report.failed else report.outcome
            end += f" with --seed {kept[SEED]}" if report.failed and SEED in kept else ""
            lines.append(f"{kept.get(ROUNDS, 0):6d} rounds  {end}  {report.nodeid}")
        return "\n".join(lines) + "\n"
