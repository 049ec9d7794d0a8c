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


def judged(judge, *arguments):
    """How it went, in words."""
    try:
        judge(*arguments)
    except Exception as error:
        return f"{FAILED} {type(error).__name__}: {str(error)[:1500]}"
    return "good"


def check(engine, methods, count):
    """Points a, b and c of some methods on an engine with so many processes: verdicts by method."""
    cases = [(method, norm) for method in methods for norm in (False, True)]
    ranks = on_ranks(count, by_engine, engine, cases, timeout=600)
    assert all(not isinstance(rank, str) for rank in ranks), ranks
    alone = on_ranks(1, by_engine, engine, cases[::2])[0]

    def judge(method, place):
        here = [rank[2 * place : 2 * place + 2] for rank in ranks]
        assert_alike(here)
        assert_close(here[0][0], alone[place])
        # A Trainer and `fit` note plans where they are made, Lightning before a step, the reference after it.
        normed = {**here[0][1], "state": here[0][1]["last"]}
        assert_close(normed, by_shares(engine, method, count), plans=engine in ("loop", "accelerate"))

    return {method: judged(judge, method, place) for place, method in enumerate(methods)}


def check_resumed(engine, methods, counts, folder, step):
    """Point d: left after some step and continued, by as many processes to the bit, by others to tolerance."""
    count, other = counts
    same = [(method, True, f"{folder}/same {method}") for method in methods]
    few = [(method, False, f"{folder}/few {method}") for method in methods]
    left = [(*case, step) for case in same + few]
    first, again = (
        on_ranks(count, by_engine, engine, cases, timeout=600) for cases in ([case[:2] for case in same] + left, same)
    )
    others = on_ranks(other, by_engine, engine, [*few, *(case[:2] for case in few)], timeout=600)
    assert all(not isinstance(rank, str) for rank in [*first, *again, *others]), (first, again, others)

    def judge(place):
        size = len(methods)
        assert [first[0][size + place], first[0][2 * size + place]] == ["left", "left"], first[0]
        for rank in again:
            assert rank[place]["hash"] == first[0][place]["hash"]
        assert_close(others[0][place], others[0][size + place], plans=False)

    return {method: judged(judge, place) for place, method in enumerate(methods)}


def check_killed(engine, methods, count):
    """Point e: the last process is killed in the middle of training, and each of the others says so."""

    def judge(method):
        *survivors, gone = on_ranks(count, stopping_one, engine, method, signal.SIGKILL, timeout=120)
        assert gone == "gone", gone
        for answer in survivors:
            assert isinstance(answer, str) and "another process of this training has ended" in answer, answer

    return {method: judged(judge, method) for method in methods}


@pytest.mark.soak
def test_any_engine_and_method(seed):
    chance = random.Random(seed)
    engine, method = chance.choice(sorted(ENGINES)), chance.choice(METHODS)
    assert check(engine, [method], 2 + seed % 2) == {method: "good"}


@pytest.mark.soak
def test_any_method_resumed(seed, tmp_path):
    chance = random.Random(seed)
    engine, method = chance.choice(sorted(ENGINES)), chance.choice(METHODS)
    verdicts = check_resumed(engine, [method], (2 + seed % 2, 1 + seed % 3), tmp_path, chance.randrange(2, 8))
    assert verdicts == {method: "good"}


def cells():
    """What is to be shown of every method, by an engine and a number of processes."""
    for engine in ENGINES:
        for count in (2, 3):
            yield engine, f"{count} processes, alike, as one and by shares", check, count
    for engine in ENGINES:
        for count, other in ((2, 3), (3, 1)):
            yield engine, f"resumed from {count} by {count} to the bit and by {other}", check_resumed, (count, other)
    for engine in ENGINES:
        for count in (2, 3):
            yield engine, f"{count} processes, one killed", check_killed, count


def run(engine, what, point, count, methods):
    """Verdicts by method, of a set of processes for all, or of one for each where together they fail."""
    try:
        if point is not check_resumed:
            return point(engine, methods, count)
        step = random.Random(f"{engine} {what}").randrange(2, 8)
        with tempfile.TemporaryDirectory() as folder:
            verdicts = point(engine, methods, count, folder, step)
        return {method: f"{verdict} (left after step {step})" for method, verdict in verdicts.items()}
    except Exception as error:
        if len(methods) == 1:
            return {methods[0]: f"{FAILED} {type(error).__name__}: {str(error)[:1500]}"}
        return {name: verdict for one in methods for name, verdict in run(engine, what, point, count, [one]).items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell after so many minutes")
    parser.add_argument("--only", default="", help="cells whose names hold this")
    parser.add_argument("--again", action="store_true", help="those that are good already too")
    chosen = parser.parse_args()
    PROCESSES.set_forkserver_preload([*PRELOADED, "accelerate", "lightning", "transformers.trainer"])
    journal = Journal("several-processes.log", "python -m tests.soak.test_several_processes: one line per cell")
    done, until, verdicts = set() if chosen.again else journal.good(), time.monotonic() + 60 * chosen.minutes, []
    for engine, what, point, count in cells():
        names = {method: f"{engine}, {method}, {what}" for method in METHODS}
        left = [method for method, name in names.items() if chosen.only in name and name not in done]
        if left and time.monotonic() < until:
            found = run(engine, what, point, count, left)
            for method, verdict in found.items():
                journal.add(names[method], verdict)
            verdicts += found.values()
    names = {f"{engine}, {method}, {what}" for engine, what, *_ in cells() for method in METHODS}
    print(f"{len(verdicts)} run, {len(names - journal.good())} of {len(names)} left")
    return int(any(verdict.startswith(FAILED) for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
