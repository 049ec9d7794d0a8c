import pytest
from holdfast.papers.fingerprint import fingerprint

from holdfast.errors import ConfigError
from holdfast.papers.engine.reproduce import reproduce
from tests.papers import toy


def test_an_experiment_is_run_and_judged(marks, cache):
    experiment = toy.toy_experiment(marks)
    results = reproduce(experiment, "smoke", cache=cache, jobs=2)
    assert results.seeds == (0, 1)
    assert results.values("toy/b", "score") == (10.0, 11.0)
    assert [claim.holds for claim in results.claims] == [True, False, None]
    assert results.complete
    assert results.fingerprint == fingerprint(experiment, "smoke")
    assert set(results.environment) >= {"holdfast", "python", "torch", "platform", "cpus", "uncommitted_changes"}
    assert len(list(marks.iterdir())) == 4


def test_an_experiment_with_a_failing_cell_is_incomplete(marks, cache):
    results = reproduce(toy.toy_experiment(marks, (toy.add, toy.broken)), "smoke", cache=cache, jobs=2)
    assert not results.complete
    assert results.cells[1].errors == dict.fromkeys((0, 1), "the data set isn't there; fetch it")
    assert results.values("toy/a", "score") == (0.0, 1.0)


@pytest.mark.parametrize("seeds", [(), (1, 1), (-1,)])
def test_seeds_that_make_no_sense_are_refused(marks, cache, seeds):
    with pytest.raises(ConfigError, match="different numbers from 0"):
        reproduce(toy.toy_experiment(marks), "smoke", seeds, cache=cache)


def test_no_jobs_are_refused(marks, cache):
    with pytest.raises(ConfigError, match="jobs is 0"):
        reproduce(toy.toy_experiment(marks), "smoke", jobs=0, cache=cache)
