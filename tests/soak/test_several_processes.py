"""Every method on two and three processes, by every engine: equal to each other to the bit, and to one process.

The sample in `make test` is one method on one engine, chosen by the seed; `make soak` goes on to others.
`python -m tests.soak.test_several_processes` runs all of them once, in pieces of as many minutes as it is given, and
appends what it found to results/soak/several-processes.log; cells that are good there are not run again.
"""

import argparse
import random
import signal
import sys
import tempfile
import time

import numpy as np
import pytest

from tests.children import PRELOADED, PROCESSES
from tests.several import ENGINES, METHODS, by_engine, by_shares, on_ranks, stopping_one
from tests.soak.journal import FAILED, Journal


def assert_alike(ranks):
    """Plans, weights and buffers of all processes are the same to the bit."""
    assert all(not isinstance(rank, str) for rank in ranks), ranks
    for rank in ranks[1:]:
        for one, other in zip(ranks[0], rank, strict=True):
            assert one["plans"] == other["plans"]
            assert one["hash"] == other["hash"]


def assert_close(one, other, plans=True):
    """Plans are equal, weights to 1e-6."""
    assert not isinstance(one, str) and not isinstance(other, str), (one, other)
    assert one["plans"] == other["plans"] or not plans
    for kind in ("state", "last"):
        for name, values in one[kind].items():
            np.testing.assert_allclose(values, other[kind][name], rtol=1e-6, atol=1e-6, err_msg=name)


def check(engine, method, count):
    """Points a, b and c of a method on an engine with so many processes."""
    cases = [(method, False), (method, True)]
    ranks = on_ranks(count, by_engine, engine, cases, timeout=300)
    assert_alike(ranks)
    assert_close(ranks[0][0], on_ranks(1, by_engine, engine, cases[:1], timeout=300)[0][0])
    # A Trainer and `fit` note plans where they are made, the reference at every step.
    normed = {**ranks[0][1], "state": ranks[0][1]["last"]}
    assert_close(normed, by_shares(engine, method, count), plans=engine not in ("trainer", "fit"))


def check_resumed(engine, method, counts, folder, step):
    """Point d: left after some step and continued, by as many processes to the bit, by others to tolerance."""
    count, other = counts
    same, few = (method, True, f"{folder}/same"), (method, False, f"{folder}/other")
    whole, *left = on_ranks(count, by_engine, engine, [same[:2], (*same, step), (*few, step)], timeout=300)[0]
    assert left == ["left", "left"], left
    (again,) = on_ranks(count, by_engine, engine, [same], timeout=300)[0]
    assert isinstance(again, dict), again
    assert again["hash"] == whole["hash"]
    assert_close(*on_ranks(other, by_engine, engine, [few, few[:2]], timeout=300)[0], plans=False)


@pytest.mark.soak
def test_any_engine_and_method(seed):
    chance = random.Random(seed)
    check(chance.choice(sorted(ENGINES)), chance.choice(METHODS), 2 + seed % 2)


@pytest.mark.soak
def test_any_method_resumed(seed, tmp_path):
    chance = random.Random(seed)
    engine, method = chance.choice(sorted(ENGINES)), chance.choice(METHODS)
    check_resumed(engine, method, (2 + seed % 2, 1 + seed % 3), tmp_path, chance.randrange(2, 8))


def check_killed(engine, method, count):
    """Point e: the last process is killed in the middle of training, and each of the others says so."""
    *survivors, gone = on_ranks(count, stopping_one, engine, method, signal.SIGKILL, timeout=120)
    assert gone == "gone", gone
    for answer in survivors:
        assert isinstance(answer, str) and "another process of this training has ended" in answer, answer


def cells():
    """What is to be shown, by name."""
    for engine in ENGINES:
        for method in METHODS:
            for count in (2, 3):
                yield (
                    f"{engine}, {method}, {count} processes, alike, as one and by shares",
                    check,
                    (engine, method, count),
                )
    for engine in ENGINES:
        for method in METHODS:
            for count, other in ((2, 3), (3, 1)):
                name = f"{engine}, {method}, resumed from {count} by {count} and by {other}"
                yield name, check_resumed, (engine, method, (count, other))
    for engine in ENGINES:
        for method in METHODS:
            for count in (2, 3):
                yield f"{engine}, {method}, {count} processes, one killed", check_killed, (engine, method, count)


def run(name, point, arguments):
    """How a cell went."""
    try:
        if point is check_resumed:
            chance = random.Random(name)
            with tempfile.TemporaryDirectory() as folder:
                step = chance.randrange(2, 8)
                point(*arguments, folder, step)
                return f"good (left after step {step})"
        point(*arguments)
    except Exception as error:
        return f"{FAILED} {type(error).__name__}: {str(error)[:1500]}"
    return "good"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell after so many minutes")
    parser.add_argument("--only", default="", help="cells whose names hold this")
    parser.add_argument("--again", action="store_true", help="those that are good already too")
    chosen = parser.parse_args()
    PROCESSES.set_forkserver_preload([*PRELOADED, "accelerate", "lightning", "transformers.trainer"])
    journal = Journal("several-processes.log", "python -m tests.soak.test_several_processes: one line per cell")
    done, until, verdicts = set() if chosen.again else journal.good(), time.monotonic() + 60 * chosen.minutes, []
    for name, point, arguments in cells():
        if chosen.only in name and name not in done and time.monotonic() < until:
            verdicts.append(run(name, point, arguments))
            journal.add(name, verdicts[-1])
    left = sum(name not in journal.good() for name, _, _ in cells())
    print(f"{len(verdicts)} run, {left} of {len(list(cells()))} left")
    return int(any(verdict.startswith(FAILED) for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
