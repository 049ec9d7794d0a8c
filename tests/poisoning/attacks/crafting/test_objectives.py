import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import ConfigError
from holdfast.poisoning.attacks.crafting.objectives import (
    bullseye,
    convex_polytope,
    feature_collision,
    misalignment,
    parameter_gradient,
    scatter,
)
from holdfast.primitives.per_example import per_example_gradients
from tests.poisoning.attacks.toy import tiny_examples, tiny_net


def test_the_gradient_is_the_mean_of_the_gradients_of_single_examples():
    model, (x, y) = tiny_net(), tiny_examples(6).gather(torch.arange(6))
    gradient, logits = parameter_gradient(model, x, y)
    torch.testing.assert_close(gradient, per_example_gradients(model, x, y).mean(0))
    torch.testing.assert_close(logits, model(x))
    assert not gradient.requires_grad and all(p.grad is None for p in model.parameters())


def test_a_frozen_extractor_leaves_the_gradient_of_the_head():
    model, (x, y) = tiny_net(), tiny_examples(6).gather(torch.arange(6))
    model.requires_grad_(False)
    model[-1].requires_grad_()
    features = model[:-1](x)
    error = (model(x).softmax(1) - F.one_hot(y, 3)) / 6
    wanted = torch.cat([(error.T @ features).flatten(), error.sum(0)])
    torch.testing.assert_close(parameter_gradient(model, x, y)[0], wanted)
    with pytest.raises(ConfigError, match="unfreeze the head"):
        parameter_gradient(model.requires_grad_(False), x, y)


def test_the_gradient_of_the_alignment_is_that_of_finite_differences():
    """Differentiated twice: through the parameters' gradient, with respect to the images."""
    model = tiny_net().double()
    x, y = tiny_examples(4).gather(torch.arange(4))
    wanted = torch.randn(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    x = x.double().requires_grad_()

    def objective(images):
        return misalignment(parameter_gradient(model, images, y, create_graph=True)[0], wanted)

    (gradient,) = torch.autograd.grad(objective(x), x)
    for seed in range(3):
        step = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        numeric = (objective(x + 1e-5 * step) - objective(x - 1e-5 * step)) / 2e-5
        torch.testing.assert_close((gradient * step).sum(), numeric.detach(), rtol=1e-6, atol=1e-9)


def test_alignment_is_one_cosine_over_all_parameters():
    a, b = torch.tensor([3.0, 0.0, 1.0]), torch.tensor([6.0, 0.0, 2.0])
    assert misalignment(a, b) == pytest.approx(0, abs=1e-6)
    assert misalignment(a, -b) == pytest.approx(2)
    assert misalignment(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0])) == pytest.approx(1)
    assert misalignment(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])) == pytest.approx(0.4)


def test_scatter_is_the_mean_over_all_pairs():
    logits, labels = torch.randn(6, 4), torch.randint(4, (6,))
    residuals = logits.softmax(1) - F.one_hot(labels, 4)
    pairs = [1 - F.cosine_similarity(residuals[i], residuals[j], dim=0) for i in range(6) for j in range(6) if i != j]
    torch.testing.assert_close(scatter(logits, labels), torch.stack(pairs).mean())
    assert scatter(logits[:1], labels[:1]) == 0
    assert scatter(logits[:1].expand(3, -1), labels[:1].expand(3)) == pytest.approx(0, abs=1e-6)


def test_distances_are_what_they_say():
    features = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert bullseye(features, torch.tensor([[2.0, 4.0]])) == 0
    assert bullseye(features, torch.tensor([[2.0, 0.0]])) == pytest.approx(2)
    assert bullseye(features.view(2, 1, 1, 2), torch.tensor([[[[5.0, 4.0]]]])) == pytest.approx(3 / 41**0.5)
    assert feature_collision(features, torch.tensor([[1.0, 4.0]])).tolist() == [4, 8]
    goal = torch.tensor([2.0, 5.0])
    assert convex_polytope(features, goal, torch.tensor([0.5, 0.5])) == pytest.approx(0.5 / 29)
