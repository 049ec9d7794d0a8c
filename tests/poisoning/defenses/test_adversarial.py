import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.errors import ConfigError, DataError
from holdfast.poisoning.attacks.crafting.objectives import misalignment, parameter_gradient
from holdfast.poisoning.bed import rendered_shapes, shape_cnn, shape_splits
from holdfast.poisoning.defenses import AdversarialPoisoning
from holdfast.training import Training, fit
from holdfast.training.batches import Batch
from holdfast.training.objective import Forward


def forward(n: int = 24) -> Forward:
    data = rendered_shapes(n, classes=4)
    inputs, labels = data.gather(torch.arange(n))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Tanh(), nn.Linear(8, 4))
    return Forward(model, Batch(inputs, labels, torch.arange(n), torch.ones(n)))


@pytest.mark.parametrize(("share", "count"), [(0.25, 6), (0.5, 12), (0.75, 18)])
def test_that_many_are_changed_within_the_budget(monkeypatch: pytest.MonkeyPatch, share: float, count: int) -> None:
    given = forward()
    seen: list[torch.Tensor] = []
    original = type(given.model).forward

    def watch(self: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        seen.append(inputs.detach().clone())
        return original(self, inputs)

    monkeypatch.setattr(type(given.model), "forward", watch)
    loss = AdversarialPoisoning(share=share).objective()(given)
    loss.backward()
    trained, clean = seen[-1], given.batch.inputs
    assert isinstance(clean, torch.Tensor)
    changed = (trained != clean).flatten(1).any(1)
    assert changed.tolist() == [True] * count + [False] * (24 - count)
    assert float((trained - clean).abs().max()) <= 16 / 255 + 1e-6
    assert all(part.grad is not None for part in given.model.parameters())


def test_the_inner_attack_matches_gradients() -> None:
    given = forward()
    objective = AdversarialPoisoning(steps=20).objective()
    inputs, labels = given.batch.inputs, given.batch.labels
    assert isinstance(inputs, torch.Tensor)
    change = objective.perturbations(given, 12)  # type: ignore[attr-defined]
    pretended = labels[:12].mode().values
    wanted = parameter_gradient(given.model, inputs[12:], pretended.expand(12))[0]

    def far(poisons: torch.Tensor) -> float:
        return float(misalignment(parameter_gradient(given.model, poisons, labels[:12])[0], wanted))

    assert far(inputs[:12] + change) < far(inputs[:12])


def test_it_trains() -> None:
    splits = shape_splits(200, 80, classes=3)
    settings = Training(epochs=30, batch_size=16, learning_rate=0.05, select_by="accuracy")
    result = fit(shape_cnn(0, 3, 8), splits, AdversarialPoisoning(steps=1), settings)
    assert result.history[-1]["loss"] < 0.6 * result.history[0]["loss"]  # 0.4 of it under three seeds
    assert result.test_last.accuracy > 0.5  # after 10 epochs it is 0.5 on some processors


def test_a_share_that_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="share of adversarial-poisoning is 1"):
        AdversarialPoisoning(share=1.0)


def test_a_single_example_is_trained_on_as_it_is() -> None:
    given = forward(4)
    one = Forward(given.model, Batch(*(part[:1] for part in given.batch)))  # type: ignore[arg-type]
    loss = AdversarialPoisoning().objective()(one)
    expected = F.cross_entropy(given.model(given.batch.inputs[:1]), given.batch.labels[:1])  # type: ignore[index]
    torch.testing.assert_close(loss, expected)


def test_features_are_refused() -> None:
    """Where a victim's features are computed once, there are no pixels left to change."""
    given = forward(8)
    features = Forward(nn.Linear(768, 4), Batch(given.batch.inputs.flatten(1), *given.batch[1:]))  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"changes images, and inputs have the shape \(768,\)"):
        AdversarialPoisoning().objective()(features)
