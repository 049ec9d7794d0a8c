"""The spec's golden vectors (2.6): five updates of two coordinates, one attacker."""

import pytest
import torch

from holdfast.federated.aggregation import FedMgda, KLoss, build_aggregator, krum_scores, squared_distances, tilted_risk
from holdfast.federated.aggregation.losses import tilted_weights
from tests.federated.aggregation.rounds import LOSSES, UPDATES

STEPS = {
    "mean": (-0.54, 2.08),
    "median": (0.3, 1.0),
    "clipping": (0.373137085, 0.70627417),
    "krum": (0.3, 0.4),
    "multi-krum": (0.825, 0.6),
    "k-norm": (0.825, 0.6),
    "k-loss": (0.0, 1.0),
    "tilted-mean": (-4.1866468063, 6.0390867705),
    "q-fair": (-0.0150677306, 0.0238263129),
}


def close(found: torch.Tensor, expected: object) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", STEPS)
def test_every_rule_takes_the_step_of_the_specification(name: str) -> None:
    close(build_aggregator(name)(UPDATES, f=1, losses=LOSSES), STEPS[name])


def test_q_fair_with_q_zero_is_the_mean_of_the_specification() -> None:
    close(build_aggregator("q-fair", {"q-fair": {"q": 0.0}})(UPDATES, losses=LOSSES), STEPS["mean"])


@pytest.mark.parametrize(
    ("epsilon", "step", "norm"),
    [
        (0.0, (0.3414213562, 0.6614213562), None),
        (0.1, (0.2507106781, 0.5907106781), 0.641712513),
        (1.0, (0.2, 0.4), 0.4472135955),
    ],
)
def test_fedmgda_takes_the_step_of_the_specification(epsilon: float, step: object, norm: float | None) -> None:
    found = FedMgda(epsilon)(UPDATES)
    close(found, step)
    if norm is not None:
        assert float(found.norm()) == pytest.approx(norm, abs=1e-8)


def test_krum_scores_are_those_of_the_specification() -> None:
    close(krum_scores(squared_distances(UPDATES), 2), (5.05, 1.45, 1.85, 1.30, 182.45))


def test_term_has_the_weights_and_the_risk_of_the_specification() -> None:
    close(tilted_weights(LOSSES, 1.0), (0.0601086537, 0.0896715741, 0.0734168754, 0.0445295859, 0.7322733108))
    assert tilted_risk(LOSSES, 1.0) == pytest.approx(1.7021635468, abs=1e-8)


def test_k_loss_discards_the_expected_attackers_one_by_one() -> None:
    chosen = [KLoss()(UPDATES, f=f, losses=LOSSES).tolist() for f in range(5)]
    assert chosen == [UPDATES[i].tolist() for i in (4, 1, 2, 0, 3)]
