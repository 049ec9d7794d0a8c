"""How tests are dealt out to the processes that run them."""

import json
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[1]
CONFTEST = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests import dealing, tiers
dealing.ROOT = Path({{folder!r}})
dealing.DURATIONS = tiers.DURATIONS = dealing.ROOT / "durations.json"
pytest_plugins = ("tests.tiers", "tests.dealing")
"""
NOTE = """
import os, pytest
def note(name):
    with open("order", "a") as file:
        print(os.getpid(), name, file=file)
"""


@pytest.mark.parametrize("grouped", [True, False])
def test_a_file_or_a_group_runs_in_one_process_and_the_shortest_come_last(pytester, grouped):
    pytester.makeconftest(CONFTEST.format(folder=str(pytester.path)))
    pytester.makeini("[pytest]\nmarkers =\n  slow: x\n  soak: x\n")
    mark = 'pytestmark = pytest.mark.xdist_group("server")' if grouped else ""
    tests = "\n".join(f"@pytest.mark.parametrize('n', range(9))\ndef test_{k}(n): note(__name__)" for k in range(2))
    for name in ("alpha", "omega"):
        pytester.makepyfile(**{f"test_{name}": f"{NOTE}\n{mark}\n{tests}"})
    for name in ("long", "middle", "short"):
        pytester.makepyfile(**{f"test_{name}": f"{NOTE}\n{tests}"})
    seconds = {"test_long.py::test_0[1]": 30, "test_long.py": 20, "test_middle.py::test_0[0]": 40}
    (pytester.path / "durations.json").write_text(json.dumps(seconds))
    pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup").assert_outcomes(passed=90)
    ran = [line.split() for line in (pytester.path / "order").read_text().splitlines()]
    processes = {name: {pid for pid, other in ran if other == name} for _, name in ran}
    assert {len(pids) for pids in processes.values()} == {1}
    assert len(set.union(*processes.values())) == 2
    first = list(dict.fromkeys(name for _, name in ran))
    if grouped:
        assert processes["test_alpha"] == processes["test_omega"]
        assert set(first[:3]) >= {"test_alpha", "test_short"}, "of unknown length, so they begin at once"
        assert first.index("test_long") < first.index("test_middle")
    else:
        assert set(first[:2]) == {"test_alpha", "test_omega"}
    assert first[-1] == "test_middle"
