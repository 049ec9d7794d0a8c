"""The same seed and the same configuration: on Flower the models are those of the simulator."""

import pytest
import torch

from tests.integrations.flower.small_federation import in_simulator, new_run, on_flower, options_of, personal_rows

pytestmark = pytest.mark.xdist_group("flower")

#: Parts that don't touch one another share a federation. `make soak` takes any of them, on more nodes.
METHODS = {
    "ditto, multi-krum, a3": [
        *("--personalize", "ditto", "--ditto.lambda", "0.1", "--ditto.steps", "3", "--aggregate", "multi-krum"),
        *("--attack", "a3", "--malicious", "0.25", "--cohort", "14"),
    ],
    "ditto and term": ["--personalize", "ditto", "--ditto.lambda", "0.5", "--objective", "term"],
    "ditto by the paper's start, momentum+centred-clipping, alie": [
        *("--personalize", "ditto", "--ditto.lambda", "0.5", "--ditto.start", "initial"),
        *("--aggregate", "momentum+centred-clipping"),
        *("--attack", "optimised-alie", "--malicious", "0.25", "--cohort", "14"),
    ],
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
    return options, ours, run


@pytest.mark.parametrize("name", list(METHODS)[1:])
def test_models_after_three_rounds_on_four_nodes_are_those_of_the_simulator(name, four_nodes, tmp_path):
    """Three, so that what server and clients remember of a round is made, used, and made again."""
    assert_models_are_those_of_the_simulator(METHODS[name], four_nodes, 4, 3, tmp_path / "run")


@pytest.mark.soak
def test_models_on_many_nodes_are_those_of_the_simulator_and_always_the_same(seed, request, tmp_path):
    """Two runs of one seed are equal to the bit. Many are eight, where it is repeated."""
    soaking = request.config.getoption("--soak") is not None
    nodes, rounds = (8, 5) if soaking else (4, 3)
    deployment = request.getfixturevalue("eight_nodes" if soaking else "four_nodes")
    words = list(METHODS.values())[seed % len(METHODS)]
    options, first, run = assert_models_are_those_of_the_simulator(
        words, deployment, nodes, rounds, tmp_path / f"{seed}"
    )

    again = new_run(tmp_path / f"{seed}-again", options)
    second = on_flower(deployment, options, again)

    assert torch.equal(first.weights, second.weights)
    for label in first.reports.keys() - {"global"}:
        mine, other = (personal_rows(deployment, each, label, 16) for each in (run, again))
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[client], other[client]) for client in mine)
