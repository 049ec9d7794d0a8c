import pytest

from holdfast.errors import ConfigError
from holdfast.papers.engine.reproduce import reproduce
from holdfast.papers.engine.store import Store
from tests.papers import toy


@pytest.fixture
def store(tmp_path):
    """The results folder of one experiment."""
    return lambda experiment: Store(tmp_path / "results", [experiment], "smoke")


def test_an_experiment_is_run_and_judged(marks, cache, store):
    experiment = toy.toy_experiment(marks)
    results = reproduce(experiment, store(experiment), cache=cache, jobs=2)
    assert results.seeds == (0, 1)
    assert results.values("toy/b", "score") == (10.0, 11.0)
    assert [claim.verdict for claim in results.claims] == ["holds", "fails", "not judged"]
    assert results.complete
    assert set(results.origins[-1]) >= {"commit", "date", "holdfast", "python", "torch", "platform", "cpus"}
    assert len(list(marks.iterdir())) == 4


def test_an_experiment_with_a_failing_cell_is_incomplete(marks, cache, store):
    experiment = toy.toy_experiment(marks, (toy.add, toy.broken))
    results = reproduce(experiment, store(experiment), cache=cache, jobs=2)
    assert results.failed and not results.complete
    assert results.cells[1].errors == dict.fromkeys((0, 1), "the data set isn't there; fetch it")
    assert results.values("toy/a", "score") == (0.0, 1.0)


@pytest.mark.parametrize("seeds", [(), (1, 1), (-1,)])
def test_seeds_that_make_no_sense_are_refused(marks, cache, store, seeds):
    experiment = toy.toy_experiment(marks)
    with pytest.raises(ConfigError, match="different numbers from 0"):
        reproduce(experiment, store(experiment), seeds, cache=cache)


def test_no_jobs_are_refused(marks, cache, store):
    experiment = toy.toy_experiment(marks)
    with pytest.raises(ConfigError, match="jobs is 0"):
        reproduce(experiment, store(experiment), jobs=0, cache=cache)
