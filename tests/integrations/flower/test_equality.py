"""The same seed and the same configuration: on Flower the models are those of the simulator."""

import pytest
import torch

from tests.integrations.flower.small_federation import in_simulator, new_run, on_flower, options_of, personal_rows

pytestmark = pytest.mark.xdist_group("flower")

METHODS = {
    "fedavg": ["--personalize", "none"],
    "ditto": ["--personalize", "ditto", "--ditto.lambda", "0.5"],
    "ditto, the paper's start": ["--personalize", "ditto", "--ditto.lambda", "0.5", "--ditto.start", "initial"],
    "ditto, multi-krum, a3": [
        *("--personalize", "ditto", "--ditto.lambda", "0.1", "--ditto.steps", "3", "--aggregate", "multi-krum"),
        *("--attack", "a3", "--malicious", "0.25", "--cohort", "14"),
    ],
    "momentum+centred-clipping, alie": [
        *("--personalize", "none", "--aggregate", "momentum+centred-clipping"),
        *("--attack", "optimised-alie", "--malicious", "0.25", "--cohort", "14"),
    ],
    "term": ["--personalize", "none", "--objective", "term"],
}


@pytest.mark.parametrize("words", METHODS.values(), ids=METHODS)
def test_models_after_five_rounds_on_eight_nodes_are_those_of_the_simulator(words, eight_nodes, tmp_path):
    options = options_of("--nodes", "8", "--rounds", "5", "--executor", "serial", *words)
    run = new_run(tmp_path / "run", options)

    ours = on_flower(eight_nodes, options, run)
    theirs = in_simulator(options)

    assert (ours.weights - theirs.weights).abs().max() <= 1e-6
    assert (theirs.weights - theirs.network.initial).abs().max() > 1e-2
    assert ours.joined.tolist() == theirs.joined.tolist()
    assert ours.faults == []
    for label, report in theirs.reports.items():
        assert ours.reports[label].summary() == pytest.approx(report.summary(), abs=1e-6)
    for label, store in theirs.runtime.stores.items():
        rows = personal_rows(eight_nodes, run, label, 16)
        assert sorted(rows) == store.written.nonzero().flatten().tolist()
        for client, row in rows.items():
            assert (row - store.read(torch.tensor([client]))[0]).abs().max() <= 1e-6


def test_two_runs_with_the_same_seed_give_identical_models(eight_nodes, tmp_path):
    options = options_of("--nodes", "8", "--rounds", "2", "--personalize", "ditto", "--ditto.lambda", "0.5")
    runs = [new_run(tmp_path / name, options) for name in ("first", "second")]

    first, second = (on_flower(eight_nodes, options, run) for run in runs)

    assert torch.equal(first.weights, second.weights)
    mine, other = (personal_rows(eight_nodes, run, "ditto-0.5", 16) for run in runs)
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[client], other[client]) for client in mine)
