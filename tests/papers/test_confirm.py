"""Results that a change of the code made stale, and a sample of cells that says whether they still hold."""

from dataclasses import replace

import pytest

from holdfast.errors import ConfigError
from holdfast.papers.confirm import Difference, confirm, sample
from holdfast.papers.fingerprint import Fingerprint, fingerprint
from holdfast.papers.reproduce import reproduce
from holdfast.papers.results import Measured, Metric, read_results, stale, write_results
from tests.papers import toy


@pytest.fixture
def old(marks, cache):
    """Results of an experiment whose code has changed since."""
    experiment = toy.toy_experiment(marks)
    results = reproduce(experiment, "smoke", cache=cache, jobs=2)
    past = Fingerprint(results.fingerprint.declaration, {**results.fingerprint.sources, "errors": "another"})
    return experiment, replace(results, fingerprint=past)


def test_cells_that_agree_make_results_todays(old, tmp_path):
    experiment, results = old
    assert stale(experiment, results) == "errors changed since"
    found, differences = confirm(experiment, results, 1, cache=tmp_path / "empty")
    assert differences == ()
    assert stale(experiment, found) is None
    assert (found.date, found.cells, found.claims) == (results.date, results.cells, results.claims)
    (one,) = found.confirmed
    assert one.seed in results.seeds and len(one.cells) == 1
    write_results(found, tmp_path)
    assert read_results(tmp_path / "toys/table1.smoke.json") == found


def test_cells_are_computed_and_not_remembered(old, marks, tmp_path):
    experiment, results = old
    before = len(list(marks.iterdir()))
    confirm(experiment, results, 5, cache=tmp_path / "empty")
    assert len(list(marks.iterdir())) == before + 2


def test_one_other_number_is_enough(old, cache):
    experiment, results = old
    seed, cells = sample(experiment, results, 1)
    place = results.seeds.index(seed)
    values = [3.0, 3.0]
    wrong = {"score": Metric(Measured.of(values))}
    spoilt = tuple(
        replace(cell, metrics={**cell.metrics, **wrong}) if cell.name == cells[0].name else cell
        for cell in results.cells
    )
    now = results.values(cells[0].name, "score")[place]
    found, differences = confirm(experiment, replace(results, cells=spoilt), 1, cache=cache)
    assert differences == (Difference(cells[0].name, "score", 3.0, now),)
    assert stale(experiment, found) is not None and not found.confirmed


def test_the_sample_depends_on_the_code_and_nothing_else(marks, cache):
    experiment = toy.toy_experiment(marks, (toy.add,) * 6)
    results = reproduce(experiment, "smoke", cache=cache, jobs=2)
    past = replace(results, fingerprint=Fingerprint(results.fingerprint.declaration, {}))
    assert sample(experiment, past, 3) == sample(experiment, past, 3)
    assert len(sample(experiment, past, 99)[1]) == 6


def test_only_cells_that_run_through_what_changed_are_drawn(marks, cache):
    whole = toy.toy_experiment(marks, (toy.add,) * 4)
    cells = [
        replace(cell, depends=("training.plan",) * (place == 2)) for place, cell in enumerate(whole.cells("smoke"))
    ]
    experiment = replace(whole, cells=lambda scale: tuple(cells))
    results = reproduce(experiment, "smoke", cache=cache, jobs=2)
    past = {**results.fingerprint.sources, "training.plan": "another"}
    old = replace(results, fingerprint=Fingerprint(results.fingerprint.declaration, past))
    found, _ = confirm(experiment, old, 3, cache=cache)
    assert found.confirmed[0].cells == ("toy/c",)
    with pytest.raises(ConfigError, match="need no look"):
        confirm(experiment, found, 3, cache=cache)


def test_time_may_differ(marks, cache):
    experiment = toy.toy_experiment(marks, (toy.timed, toy.timed))
    results = reproduce(experiment, "smoke", cache=cache)
    past = Fingerprint(results.fingerprint.declaration, {})
    _, differences = confirm(experiment, replace(results, fingerprint=past), 1, cache=cache.with_name("other"))
    assert differences == ()


def test_what_cannot_be_confirmed(old, cache):
    experiment, results = old
    with pytest.raises(ConfigError, match="0 cells confirm nothing"):
        confirm(experiment, results, 0, cache=cache)
    other = Fingerprint("another", fingerprint(experiment, "smoke").sources)
    with pytest.raises(ConfigError, match="run it instead"):
        confirm(experiment, replace(results, fingerprint=other), 1, cache=cache)


def test_a_cell_that_fails_confirms_nothing(marks, cache):
    experiment = toy.toy_experiment(marks)
    results = reproduce(experiment, "smoke", cache=cache)
    broken = toy.toy_experiment(marks, (toy.broken, toy.broken))
    past = Fingerprint(fingerprint(broken, "smoke").declaration, {})
    with pytest.raises(ConfigError, match="the data set isn't there"):
        confirm(broken, replace(results, fingerprint=past), 1, cache=cache)
