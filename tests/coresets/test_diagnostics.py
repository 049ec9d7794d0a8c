import pytest
import torch
import torch.nn.functional as F

from holdfast.coresets.diagnostics import gradient, gradient_quality
from holdfast.data import Examples
from holdfast.primitives.per_example import per_example_gradients
from tests.coresets.toy import gaussians, net


def test_the_gradient_is_that_of_the_weighted_mean():
    model, examples = net().eval(), gaussians(60)
    weights = torch.rand(60)
    found = gradient(model, examples, torch.arange(60), weights)
    inputs, labels = examples.gather(torch.arange(60))
    loss = (weights * F.cross_entropy(model(inputs), labels, reduction="none")).mean()
    exact = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    assert torch.allclose(found, exact, atol=1e-6)


def test_the_gradient_is_by_default_the_one_that_training_would_take():
    """Batch norm in training mode, its buffers as they were; with running statistics it is another."""
    model, examples, some = net("batch").train(), gaussians(60), torch.arange(0, 60, 4)
    with torch.no_grad():
        model[1].running_mean += 1.0
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found, running = gradient(model, examples, some), gradient(model, examples, some, statistics="running")
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    inputs, labels = examples.gather(some)
    for mode, ours in ((True, found), (False, running)):
        loss = F.cross_entropy(model.train(mode)(inputs), labels)
        exact = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        assert torch.allclose(ours, exact, atol=1e-6)
        model.load_state_dict(before, strict=False)
    assert not torch.allclose(found, running, atol=1e-3)


def test_the_variance_of_random_subsets_is_that_of_draws_without_replacement():
    """E |g_V - G|^2 = sigma^2 / r (n - r) / (n - 1)."""
    model, examples = net("batch").eval(), gaussians(240)
    inputs, labels = examples.gather(torch.arange(240))
    rows = per_example_gradients(model, inputs, labels)
    whole = gradient(model, examples, torch.arange(240), statistics="running")
    assert torch.allclose(rows.mean(0), whole, atol=1e-6)
    sigma = float((rows - whole).square().sum(1).mean())
    generator = torch.Generator().manual_seed(0)
    for r in (16, 60):
        drawn = [rows[torch.randperm(240, generator=generator)[:r]].mean(0) for _ in range(2000)]
        quality = gradient_quality(drawn, whole)
        expected = sigma / r * (240 - r) / 239 / float(whole.norm()) ** 2
        assert quality.variance == pytest.approx(expected, rel=0.1)
        assert quality.bias < 2 * quality.floor


def test_dropping_examples_without_gradient_scales_the_mean_gradient():
    """n / (n - s): dropping what is learned acts like a larger learning rate."""
    hard = gaussians(90)
    # At a zero input a layer without bias has no gradient.
    model = torch.nn.Linear(8, 3, bias=False)
    inputs = torch.cat([hard.inputs.gather(torch.arange(90)), torch.zeros(30, 8)])
    examples = Examples.of(inputs, torch.cat([hard.labels, torch.zeros(30, dtype=torch.int64)]))
    whole, left = gradient(model, examples, torch.arange(120)), gradient(model, examples, torch.arange(90))
    assert torch.allclose(left, whole * 120 / 90, atol=1e-6)


def test_bias_is_what_does_not_average_out():
    whole = torch.tensor([2.0, 0.0])
    quality = gradient_quality([torch.tensor([3.0, 1.0]), torch.tensor([3.0, -1.0])], whole)
    assert quality.bias == pytest.approx(0.5)
    assert quality.variance == pytest.approx(0.5)
    assert quality.error == pytest.approx(2**0.5 / 2)
    assert quality.floor == pytest.approx((2 / 2) ** 0.5 / 2)
