"""The same seed and the same configuration: on Flower the models are those of the simulator."""

import pytest
import torch

from tests.integrations.flower.small_federation import in_simulator, new_run, on_flower, options_of, personal_rows

pytestmark = pytest.mark.xdist_group("flower")

#: The first is the sample of `make test` at full size; `make soak` takes any of them.
METHODS = {
    "ditto, multi-krum, a3": [
        *("--personalize", "ditto", "--ditto.lambda", "0.1", "--ditto.steps", "3", "--aggregate", "multi-krum"),
        *("--attack", "a3", "--malicious", "0.25", "--cohort", "14"),
    ],
    "ditto": ["--personalize", "ditto", "--ditto.lambda", "0.5"],
    "ditto, the paper's start": ["--personalize", "ditto", "--ditto.lambda", "0.5", "--ditto.start", "initial"],
    "momentum+centred-clipping, alie": [
        *("--personalize", "none", "--aggregate", "momentum+centred-clipping"),
        *("--attack", "optimised-alie", "--malicious", "0.25", "--cohort", "14"),
    ],
    "term": ["--personalize", "none", "--objective", "term"],
    "scaffold and fedadam": [
        *("--personalize", "ditto", "--ditto.lambda", "0.5", "--objective", "scaffold"),
        *("--server-optimizer", "fedadam", "--fedadam.server-learning-rate", "0.05"),
    ],
    "private": ["--personalize", "none", "--private", "--privacy.noise-multiplier", "0.3", "--privacy.noise-seed", "1"],
}


def assert_models_are_those_of_the_simulator(words, deployment, nodes, rounds, folder):
    options = options_of("--nodes", str(nodes), "--rounds", str(rounds), "--executor", "serial", *words)
    run = new_run(folder, options)

    ours = on_flower(deployment, options, run)
    theirs = in_simulator(options)

    assert (ours.weights - theirs.weights).abs().max() <= 1e-6
    assert (theirs.weights - theirs.network.initial).abs().max() > 1e-2
    assert ours.joined.tolist() == theirs.joined.tolist()
    assert ours.faults == []
    for label, report in theirs.reports.items():
        assert ours.reports[label].summary() == pytest.approx(report.summary(), abs=1e-6)
    for label, store in theirs.runtime.stores.items():
        rows = personal_rows(deployment, run, label, 16)
        assert sorted(rows) == store.written.nonzero().flatten().tolist()
        for client, row in rows.items():
            assert (row - store.read(torch.tensor([client]))[0]).abs().max() <= 1e-6


@pytest.mark.parametrize("name", list(METHODS)[1:])
def test_models_after_three_rounds_on_four_nodes_are_those_of_the_simulator(name, four_nodes, tmp_path):
    """Three, so that what server and clients remember of a round is made, used, and made again."""
    assert_models_are_those_of_the_simulator(METHODS[name], four_nodes, 4, 3, tmp_path / "run")


@pytest.mark.soak
def test_models_after_five_rounds_on_eight_nodes_are_those_of_the_simulator(seed, eight_nodes, tmp_path):
    words = list(METHODS.values())[seed % len(METHODS)]
    assert_models_are_those_of_the_simulator(words, eight_nodes, 8, 5, tmp_path / str(seed))


def test_two_runs_with_the_same_seed_give_identical_models(four_nodes, tmp_path):
    options = options_of("--nodes", "4", "--rounds", "2", "--personalize", "ditto", "--ditto.lambda", "0.5")
    runs = [new_run(tmp_path / name, options) for name in ("first", "second")]

    first, second = (on_flower(four_nodes, options, run) for run in runs)

    assert torch.equal(first.weights, second.weights)
    mine, other = (personal_rows(four_nodes, run, "ditto-0.5", 16) for run in runs)
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[client], other[client]) for client in mine)
