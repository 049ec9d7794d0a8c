"""The server's side of objectives (spec 2.4, checks A5 and A11)."""

import itertools

import pytest
import torch
from torch import Tensor

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Aggregator, Clipping, KLoss, Krum, Mean, mean
from holdfast.federated.objectives import (
    OBJECTIVES,
    Afl,
    FedAvg,
    FederatedObjective,
    FedProx,
    FedSGD,
    QFair,
    Term,
)
from holdfast.primitives.projections import project_to_simplex
from tests.federated.aggregation.rounds import LOSSES, UPDATES, random_losses, random_round


def step_of(
    objective: FederatedObjective,
    updates: Tensor,
    losses: Tensor,
    aggregator: Aggregator | None = None,
    *,
    f: int = 0,
    learning_rate: float = 0.1,
) -> Tensor:
    m = len(updates)
    state = objective.begin(m, updates.shape[1])
    step, _ = objective.combine(updates, losses, torch.arange(m), aggregator or Mean(), f, state, learning_rate)
    return step


@pytest.mark.parametrize(
    "objective", [FedAvg(), FedSGD(), FedProx(0.0), Term(0.0), QFair(0.0), Afl(gamma_w=0.1)], ids=lambda each: each.name
)
def test_every_objective_has_a_setting_that_is_federated_averaging(objective: FederatedObjective) -> None:
    updates = random_round(0, 6, 30)
    step = step_of(objective, updates, random_losses(0, 6), learning_rate=0.1)
    torch.testing.assert_close(step, mean(updates), rtol=0, atol=1e-12)


def test_term_and_q_ffl_take_the_steps_of_the_specification() -> None:
    expected = {Term(1.0): (-4.1866468063, 6.0390867705), QFair(1.0): (-0.0150677306, 0.0238263129)}
    for objective, step in expected.items():
        found = step_of(objective, UPDATES, LOSSES, learning_rate=0.1)
        torch.testing.assert_close(found, torch.tensor(step, dtype=torch.float64), rtol=0, atol=1e-8)


def test_the_tilt_approaches_the_mean_linearly_and_the_worst_client_in_the_end() -> None:
    updates, losses = random_round(1, 5, 20), random_losses(1, 5)
    away = [float((step_of(Term(t), updates, losses) - mean(updates)).norm()) for t in (2e-4, 1e-4)]
    assert away[0] / away[1] == pytest.approx(2, rel=1e-3)
    torch.testing.assert_close(step_of(Term(1e6), updates, losses), updates[losses.argmax()])


def test_q_ffl_decreases_its_objective_where_plain_steps_would_overshoot() -> None:
    """F_k = |w - x_k|^2 / 2 with one local step: q-FedAvg estimates the curvature and does not diverge for q = 2."""
    targets, w, rate = random_round(2, 5, 3), torch.full((3,), 10.0, dtype=torch.float64), 0.5
    risks = []
    for _ in range(30):
        losses = (w - targets).square().sum(1) / 2
        risks.append(float((losses**3).mean()))
        w = w + step_of(QFair(2.0), rate * (targets - w), losses, learning_rate=rate)
    assert all(after < before for before, after in itertools.pairwise(risks))


class TestCompanions:
    @pytest.mark.parametrize("objective", [Term(), QFair(), Afl()], ids=lambda each: each.name)
    def test_those_that_weigh_clients_refuse_rules_that_do_too(self, objective: FederatedObjective) -> None:
        for allowed in (Mean(), Clipping(), Clipping() >> Mean()):
            objective.check(allowed)
        for refused in (Krum(), KLoss(), Clipping() >> Krum()):
            with pytest.raises(ConfigError, match=rf"{objective.name} weighs clients .* {refused.label.split('+')[0]}"):
                objective.check(refused)

    @pytest.mark.parametrize("objective", [FedAvg(), FedSGD(), FedProx()], ids=lambda each: each.name)
    def test_the_others_take_any_rule_and_pass_on_what_it_needs(self, objective: FederatedObjective) -> None:
        objective.check(Krum())
        assert torch.equal(step_of(objective, UPDATES, LOSSES, KLoss(), f=1), UPDATES[1])

    def test_clipping_comes_before_the_weights(self) -> None:
        clipped = Clipping().prepare(UPDATES)
        for objective in (Term(1.0), QFair(1.0)):
            expected = step_of(objective, clipped, LOSSES)
            torch.testing.assert_close(step_of(objective, UPDATES, LOSSES, Clipping()), expected)
            assert not torch.allclose(step_of(objective, UPDATES, LOSSES), expected)


class TestAfl:
    def play(self, rounds: int, learning_rate: float) -> tuple[list[float], Tensor, Tensor]:
        """Clients at 0, 1 and 4 with F_k = (w - x_k)^2 / 2; the worst mixture is half 0, half 4, and w = 2."""
        objective, targets = Afl(gamma_w=0.05, gamma_p=0.02), torch.tensor([[0.0], [1.0], [4.0]], dtype=torch.float64)
        w, state, path = torch.zeros(1, dtype=torch.float64), objective.begin(3, 1), []
        for _ in range(rounds):
            updates, losses = -learning_rate * (w - targets), (w - targets).square()[:, 0] / 2
            step, state = objective.combine(updates, losses, torch.arange(3), Mean(), 0, state, learning_rate)
            w = w + step
            path.append(float(w))
        return path, objective.output(w, state), state["mixture"]

    def test_it_finds_the_minimax_point_of_quadratics(self) -> None:
        _, found, mixture = self.play(1500, 0.05)
        assert float(found) == pytest.approx(2, abs=0.02)
        assert mixture.tolist() == pytest.approx([0.5, 0, 0.5], abs=0.1)

    def test_its_output_is_the_average_of_the_models_whatever_the_clients_learning_rate(self) -> None:
        for learning_rate in (0.05, 0.8):
            path, found, _ = self.play(7, learning_rate)
            assert float(found) == pytest.approx(sum(path) / 7, abs=1e-12)

    def test_the_first_round_is_by_hand(self) -> None:
        path, found, mixture = self.play(1, 0.3)
        assert path == pytest.approx([0.05 * 5 / 3])
        assert float(found) == path[0]
        risen = torch.tensor([1 / 3, 1 / 3 + 0.02 * 0.5, 1 / 3 + 0.02 * 8], dtype=torch.float64)
        torch.testing.assert_close(mixture, project_to_simplex(risen))

    def test_a_client_whose_update_was_dropped_loses_weight_and_does_no_harm(self) -> None:
        objective = Afl(gamma_w=0.1, gamma_p=0.1)
        state = objective.begin(3, 2)
        updates = torch.ones(2, 2, dtype=torch.float64)
        step, after = objective.combine(updates, torch.ones(2), torch.tensor([0, 2]), Mean(), 0, state, 0.1)
        torch.testing.assert_close(step, torch.full((2,), 2 / 3, dtype=torch.float64))
        assert after["mixture"][1] < after["mixture"][0] == after["mixture"][2]
        assert state["mixture"].tolist() == pytest.approx([1 / 3] * 3)


def test_objectives_say_what_clients_must_do() -> None:
    assert {name for name, each in OBJECTIVES.items() if each.needs_losses} == {"term", "q-ffl", "afl"}
    assert {name for name, each in OBJECTIVES.items() if each.full_gradient} == {"afl"}
    assert {name for name, each in OBJECTIVES.items() if each.single_step} == {"fedsgd", "afl"}
    assert {name for name, each in OBJECTIVES.items() if each().second is not None} == {"scaffold"}
    assert FedProx(0.3).proximal == 0.3
    assert FedAvg().proximal == 0


def test_unknown_objectives_and_negative_options_are_refused() -> None:
    assert OBJECTIVES.find("term") is Term
    with pytest.raises(ConfigError, match="did you mean 'fedprox'"):
        OBJECTIVES.find("fedprx")
    for wrong in (lambda: FedProx(-1.0), lambda: Term(-1.0), lambda: QFair(-0.5), lambda: Afl(gamma_p=float("nan"))):
        with pytest.raises(ConfigError, match="give a number that is not negative"):
            wrong()
