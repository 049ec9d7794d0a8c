"""Every method on two and three processes, by every engine: equal to each other to the bit, and to one process.

The sample in `make test` is one method on one engine, chosen by the seed; `make soak` goes on to others.
`python -m tests.soak.test_several_processes` runs all of them once and writes what it found.
"""

import random
import sys

import numpy as np
import pytest

from tests.several import ENGINES, METHODS, by_engine, by_fit, by_shares, on_ranks


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
    for name, values in one["state"].items():
        np.testing.assert_allclose(values, other["state"][name], rtol=1e-6, atol=1e-6, err_msg=name)


def check(engine, method, count):
    """Points a, b and c of a method on an engine with so many processes."""
    cases = [(method, False), (method, True)]
    ranks = on_ranks(count, by_engine, engine, cases, timeout=300)
    assert_alike(ranks)
    if engine != "trainer" or count < 3:  # whose steps are others, since 16 is no multiple of 3
        assert_close(ranks[0][0], on_ranks(1, by_engine, engine, cases[:1], timeout=300)[0][0])
    if engine == "loop" and method != "group-dro":
        assert_close(ranks[0][1], by_shares(method, count))


def check_resumed(method, count, other, folder, step):
    """Point d: left after some step and continued, by as many processes to the bit, by others to tolerance."""
    for name, second, norm in (("same", count, True), ("other", other, False)):
        whole = on_ranks(second, by_fit, method, norm, timeout=300)[0]
        stopped = on_ranks(count, by_fit, method, norm, f"{folder}/{name}", step, timeout=300)[0]
        done = on_ranks(second, by_fit, method, norm, f"{folder}/{name}", timeout=300)[0]
        assert stopped == "stopped"
        assert isinstance(done, dict), done
        if name == "same":
            assert done["hash"] == whole["hash"]
        else:
            assert_close(done, whole, plans=False)


@pytest.mark.soak
def test_any_engine_and_method(seed):
    chance = random.Random(seed)
    check(chance.choice(sorted(ENGINES)), chance.choice(METHODS), 2 + seed % 2)


@pytest.mark.soak
def test_any_method_resumed(seed, tmp_path):
    chance = random.Random(seed)
    check_resumed(chance.choice(METHODS), 2 + seed % 2, 1 + seed % 3, tmp_path, chance.randrange(2, 18))


def main() -> int:
    failed = 0
    for engine in ENGINES:
        for method in METHODS:
            for count in (2, 3):
                try:
                    check(engine, method, count)
                    verdict = "as one process"
                except AssertionError as error:
                    failed += 1
                    verdict = "FAILED " + " ".join(str(error).split())[:300]
                print(f"{engine:10s} {method:10s} {count} processes: {verdict}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
