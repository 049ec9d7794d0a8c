import copy
import math

import pytest
import torch
import torch.nn.functional as F

from holdfast.data import Examples
from holdfast.errors import ConfigError
from holdfast.spurious.reweighting.lff import (
    Lff,
    LffLoss,
    LossAverage,
    bias_amplifying_losses,
    relative_difficulty,
    sibling,
)
from holdfast.training import Batch, Forward, Run, Training, fit
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

SETTINGS = Training(epochs=3, batch_size=8, learning_rate=0.02, momentum=0.9, checkpoint_seconds=0)


def small_model(seed: int) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))


def momentum_sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def batch_of(examples: Examples, positions: list[int]) -> Batch:
    chosen = torch.tensor(positions)
    inputs, labels = examples.gather(chosen)
    return Batch(inputs, labels, chosen, torch.ones(len(chosen)))


def random_batches(n: int, size: int, count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randperm(n, generator=generator)[:size].tolist() for _ in range(count)]


def naive_run(model, biased, examples, batches):
    """The algorithm as the paper writes it, an example at a time."""
    q, alpha = 0.7, 0.7
    optimizers = momentum_sgd(biased), momentum_sgd(model)
    averages = {}, {}
    labels = examples.labels.tolist()
    for positions in batches:
        batch = batch_of(examples, positions)
        logits = biased(batch.inputs), model(batch.inputs)
        for average, outputs in zip(averages, logits, strict=True):
            for probabilities, position in zip(outputs.detach().softmax(1), positions, strict=True):
                loss = -math.log(float(probabilities[labels[position]]))
                average[position] = alpha * average[position] + (1 - alpha) * loss if position in average else loss
        weights = []
        for position in positions:
            relative = [
                average[position] / max(value for other, value in average.items() if labels[other] == labels[position])
                for average in averages
            ]
            weights.append(relative[0] / (relative[0] + relative[1] + 1e-8))
        p = logits[0].softmax(1)[range(len(positions)), batch.labels]
        losses = (
            ((1 - p**q) / q).mean() * q,
            (torch.tensor(weights) * F.cross_entropy(logits[1], batch.labels, reduction="none")).mean(),
        )
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def test_both_networks_move_as_in_the_naive_algorithm(monkeypatch):
    examples = toy_examples(40)
    batches = random_batches(40, 8, 15)
    expected, expected_biased = small_model(0), small_model(1)
    naive_run(expected, expected_biased, examples, batches)

    model, objective = small_model(0), LffLoss()
    monkeypatch.setattr("holdfast.spurious.reweighting.lff.sibling", lambda _: small_model(1))
    objective.prepare(examples, model, momentum_sgd)
    optimizer = momentum_sgd(model)
    for positions in batches:
        optimizer.zero_grad()
        objective(Forward(model, batch_of(examples, positions))).backward()
        optimizer.step()
    biased = objective.state_dict()["network"]
    for found, reference in ((model.state_dict(), expected), (biased, expected_biased)):
        assert all(torch.allclose(found[key], value, atol=1e-5) for key, value in reference.state_dict().items())
        assert not torch.allclose(found["0.weight"], small_model(0).state_dict()["0.weight"], atol=1e-2)


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0])
def test_the_biased_network_follows_the_gradient_of_the_generalised_cross_entropy(q):
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(20) % 4
    (ours,) = torch.autograd.grad(bias_amplifying_losses(logits, labels, q).sum(), logits)
    p = logits.softmax(1)[range(20), labels]
    (reference,) = torch.autograd.grad(((1 - p**q) / q).sum(), logits)
    assert torch.allclose(ours, q * reference, atol=1e-6)


def test_the_first_loss_counts_in_full_and_later_ones_by_a_moving_average():
    average = LossAverage(torch.tensor([0]), alpha=0.7)
    for loss in (2.0, 1.0, 4.0):
        average.update(torch.tensor([0]), torch.tensor([loss]))
    assert average.state_dict()["values"].tolist() == pytest.approx([0.7 * (0.7 * 2 + 0.3 * 1) + 0.3 * 4])


def test_losses_are_relative_to_the_largest_average_of_the_whole_class_with_the_batch_included():
    average = LossAverage(torch.tensor([0, 0, 0, 1, 1]), alpha=0.5)
    assert average.update(torch.tensor([0, 3]), torch.tensor([4.0, 0.5])).tolist() == [1, 1]
    assert average.update(torch.tensor([1, 4]), torch.tensor([1.0, 2.0])).tolist() == [0.25, 1]
    assert average.update(torch.tensor([0, 3]), torch.tensor([0.0, 0.5])).tolist() == [1, 0.25]


def test_a_class_without_any_loss_gives_finite_weights():
    average = LossAverage(torch.tensor([0, 1]), alpha=0.7)
    relative = average.update(torch.tensor([0, 1]), torch.tensor([0.0, 3.0]))
    assert relative.tolist() == [0, 1]
    assert relative_difficulty(relative, torch.zeros(2)).tolist() == pytest.approx([0, 1])


def test_the_weights_carry_no_gradient_and_the_biased_networks_step_leaves_the_model_alone():
    examples, model, objective = toy_examples(20), small_model(0), LffLoss()
    objective.prepare(examples, model, lambda network: torch.optim.SGD(network.parameters(), lr=0.0))
    losses = torch.full((4,), 2.0, requires_grad=True)
    forward = Forward(model, batch_of(examples, [0, 1, 2, 3]))
    forward.losses = losses
    loss = objective(forward)
    (gradient,) = torch.autograd.grad(loss, losses)
    assert float(loss.detach()) == pytest.approx(float((2 * gradient).sum()))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_weights_of_the_examples_count_for_both_networks():
    examples, model = toy_examples(20), small_model(0)
    values = []
    for positions, weights in (([0, 1, 2, 3], [2.0, 0.0, 2.0, 0.0]), ([0, 2], [1.0, 1.0])):
        objective = LffLoss()
        objective.prepare(examples, model, momentum_sgd)
        loss = objective(Forward(model, batch_of(examples, positions)._replace(weights=torch.tensor(weights))))
        values.append((loss.detach(), objective.state_dict()["network"]["0.weight"]))
    assert float(values[0][0]) == pytest.approx(float(values[1][0]))
    assert torch.allclose(values[0][1], values[1][1], atol=1e-6)
    assert not torch.allclose(values[0][1], model[0].weight, atol=1e-3)


def test_examples_against_the_shortcut_come_to_weigh_more():
    splits, weights = toy_splits(), {}

    class Watched(LffLoss):
        def __call__(self, forward):
            losses = forward.losses.detach().clone().requires_grad_()
            forward.__dict__["losses"], kept = losses, forward.losses
            (weight,) = torch.autograd.grad(super().__call__(forward), losses)
            forward.__dict__["losses"] = kept
            if forward.clock.epoch >= 6:
                weights.update(zip(forward.batch.positions.tolist(), weight.tolist(), strict=True))
            return (weight * kept).sum()

    fit(toy_model(), splits, Watched(), Training(epochs=8, batch_size=10, learning_rate=0.05))
    train = splits.train
    with_shortcut = train.attributes == train.labels
    weight = torch.tensor([weights[position] for position in range(len(train))])
    assert float(weight[~with_shortcut].mean()) > 1.5 * float(weight[with_shortcut].mean())


def test_validation_runs_after_every_epoch_and_scores_the_model_itself():
    """SpuCo's LfF fails as soon as it is given a validation set."""
    model = toy_model()
    result = fit(model, toy_splits(), Lff(), SETTINGS)
    assert [0 <= record["score"] <= 1 for record in result.history] == [True] * 3
    assert result.model is model


def test_the_second_network_draws_its_own_weights_where_the_model_can():
    linear = torch.nn.Linear(3, 2)
    before = copy.deepcopy(linear.state_dict())
    assert not torch.equal(sibling(linear).weight, linear.weight)
    assert torch.equal(linear.weight, before["weight"])
    model = toy_model()
    twin = sibling(model)
    assert twin is not model
    assert fingerprint(twin) == fingerprint(model)


def test_an_interrupted_run_ends_with_the_same_two_networks_and_averages(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = fit(toy_model(), toy_splits(), Lff(), SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), Lff(), SETTINGS, run=broken, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), Lff(), SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history
    states = [run.load_checkpoint()["objective"] for run in (straight, broken)]
    for part in ("network", "average", "model_average"):
        assert states[0][part].keys() == states[1][part].keys()
        assert all(torch.equal(value, states[1][part][key]) for key, value in states[0][part].items())
    momenta = [[buffers["momentum_buffer"] for buffers in state["optimizer"]["state"].values()] for state in states]
    assert len(momenta[0]) == 6
    assert all(torch.equal(*pair) for pair in zip(*momenta, strict=True))


def test_what_is_missing_or_makes_no_sense_is_named():
    with pytest.raises(ConfigError, match=r"lff trains a second network; call objective\.prepare"):
        LffLoss().prepare(toy_examples(4))
    with pytest.raises(ConfigError, match="lff has no second network yet"):
        LffLoss()(Forward(small_model(0), batch_of(toy_examples(4), [0, 1])))
    for options in ({"q": 0.0}, {"q": 1.5}, {"alpha": 1.0}, {"alpha": -0.1}, {"q": math.nan}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} of lff is"):
            Lff(**options)
