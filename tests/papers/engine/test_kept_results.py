"""The results folder of the repository: verdicts are today's, failures are explained, values stand once."""

from pathlib import Path

import pytest

from holdfast.papers.engine.catalog import PAPERS, experiments_of
from holdfast.papers.engine.experiment import SCALES
from holdfast.papers.engine.kinds import key_of
from holdfast.papers.engine.store import Store

RESULTS = Path(__file__).resolve().parents[3] / "results"


@pytest.fixture(params=[(paper, scale) for paper in PAPERS for scale in SCALES], ids=".".join)
def store(request):
    paper, scale = request.param
    return Store(RESULTS, experiments_of(paper), scale)


def test_the_stored_verdicts_are_what_the_claims_say_of_the_stored_values(store):
    before = {name: record.claims for name, record in store.records.items()}
    store.judge()
    now = {name: record.claims for name, record in store.records.items()}
    assert now == before, "run `holdfast reproduce --judge`"


def test_every_failing_claim_says_why(store):
    silent = [
        f"{name}: {judged.name}"
        for name, record in store.records.items()
        for judged in record.claims
        for claim in store.experiments[name].claims
        if claim.name == judged.name and judged.verdict == "fails" and not claim.why
    ]
    assert silent == []


def test_every_stored_value_is_of_a_cell_that_is_declared_and_stands_once(store):
    seen = set()
    for name, record in store.records.items():
        declared = {key_of(cell) for cell in store.experiments[name].cells_at(store.scale)}
        keys = [entry.key for entry in record.cells]
        assert set(keys) <= declared, name
        assert not seen & set(keys) and len(set(keys)) == len(keys), name
        seen |= set(keys)


def test_no_version_is_newer_than_its_cell(store):
    for experiment in store.experiments.values():
        for cell in experiment.cells_at(store.scale):
            entry = store.entry(cell)
            assert entry is None or entry.version <= cell.version, cell.name


def test_every_file_belongs_to_an_experiment():
    known = {f"{each.name}.{scale}.json" for paper in PAPERS for each in experiments_of(paper) for scale in each.scales}
    kept = {file.relative_to(RESULTS).as_posix() for file in RESULTS.glob("*/*.json")}
    assert {name for name in kept if not name.startswith(("benchmarks/", "golden/", "tried-again/"))} <= known
