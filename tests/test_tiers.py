"""The tiers themselves: what is measured as slow is left out, and every room keeps a quick test."""

import ast
import json
from pathlib import Path

import pytest

from tests.tiers import DURATIONS, SLOW

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[1]
CONFTEST = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests import tiers
tiers.DURATIONS = Path("durations.json").absolute()
tiers.LAST_SOAK = Path("soak") / "last.log"
pytest_plugins = ("tests.tiers",)
"""


@pytest.fixture
def run(pytester):
    """Runs pytest with the plugin in a process of its own, whose file of durations is in an empty folder."""
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers =\n  slow: x\n  soak: x\n")
    return lambda *words: pytester.runpytest_subprocess("-p", "no:cacheprovider", *words)


def test_tests_and_files_above_the_limit_are_slow_and_new_ones_are_not(run, pytester):
    pytester.makepyfile(test_one="def test_long(): pass\ndef test_short(): pass\ndef test_new(): pass")
    pytester.makepyfile(test_two="def test_with_a_shared_fixture(): pass")
    (pytester.path / "durations.json").write_text(
        '{"test_one.py::test_long": 1.0, "test_one.py::test_short": 0.9, "test_two.py": 5}'
    )
    run("-m", "not slow").assert_outcomes(passed=2, deselected=2)
    run("-m", "slow").assert_outcomes(passed=2, deselected=2)


def test_what_is_measured_is_processor_time_with_children_and_shared_setups_count_for_the_file(run, pytester):
    pytester.makepyfile(
        test_busy="""
        import subprocess, sys, time, pytest

        def work():
            code = "import time\\nwhile time.process_time() < 0.8: pass"
            subprocess.run([sys.executable, "-c", code], check=True)

        @pytest.fixture(scope="module")
        def shared(): work()

        def test_sleeps(): time.sleep(0.8)
        def test_works(): work()
        def test_shares(shared): pass
        """
    )
    (pytester.path / "durations.json").write_text('{"test_busy.py::test_sleeps": 9, "test_gone.py::test_old": 3}')
    run("--measure").assert_outcomes(passed=3)
    measured = json.loads((pytester.path / "durations.json").read_text())
    assert measured.keys() == {"test_busy.py", "test_busy.py::test_works", "test_gone.py::test_old"}
    assert min(measured["test_busy.py"], measured["test_busy.py::test_works"]) >= 0.7
    assert measured["test_gone.py::test_old"] == 3, "what did not run keeps its number"


def test_soak_tests_run_once_with_the_given_seed_and_again_and_again_with_others_in_a_soak(run, pytester):
    pytester.makepyfile(
        test_rounds="""
        import pytest
        from hypothesis import given, strategies as st

        def test_ordinary(): pass

        @pytest.mark.soak
        def test_seeded(seed):
            with open("seeds", "a") as file:
                print(seed, file=file)

        @given(st.integers())
        def test_property(number): pass

        @pytest.mark.soak
        def test_fails_at_last(seed): assert seed == 7
        """
    )
    run("--seed", "7").assert_outcomes(passed=4)
    assert (pytester.path / "seeds").read_text() == "7\n"
    run("-m", "soak", "--soak", "0.02").assert_outcomes(passed=2, failed=1, deselected=1)
    seeds = (pytester.path / "seeds").read_text().split()
    assert len(seeds) > 3
    assert len(set(seeds)) > 0.99 * len(seeds)  # of 31 bits, so two of thousands may be the same
    log = (pytester.path / "soak" / "last.log").read_text()
    assert "3 tests, 1 failures" in log and "FAILED with --seed" in log
    assert f"{len(seeds) - 1:6d} rounds  passed  test_rounds.py::test_seeded" in log


def test_every_folder_of_tests_keeps_a_quick_one():
    """Read off the files, since collecting all of them takes a minute: one function none of whose cases is slow."""
    slow = {name.partition("[")[0] for name, taken in json.loads(DURATIONS.read_text()).items() if taken >= SLOW}
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    quick = {file.parent for file in files if any(name not in slow for name in names_of(file, slow))}
    folders = {file.parent for file in files}
    assert folders - quick == set()
    assert len(folders) > 40


def names_of(file, slow):
    """The ids of a file's test functions without their parameters, unless the file as a whole is slow."""
    name = file.relative_to(ROOT).as_posix()
    functions = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [] if name in slow else [f"{name}::{function}" for function in functions if function.startswith("test_")]
