import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, hessian

from holdfast.primitives.curvature import Smoothed, flat, gradient_and_diagonal, gradient_of


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def small_net():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    x, y = torch.randn(40, 6, dtype=torch.float64), torch.randint(3, (40,))
    return net, x, y


def exact_hessian(net, x, y):
    shapes = [(name, p.shape, p.numel()) for name, p in net.named_parameters()]

    def loss(vector):
        parts, start = {}, 0
        for name, shape, count in shapes:
            parts[name] = vector[start : start + count].reshape(shape)
            start += count
        return F.cross_entropy(functional_call(net, parts, (x,)), y)

    return hessian(loss)(flat(list(net.parameters())))


def test_the_diagonal_is_within_its_standard_error_of_the_exact_one():
    net, x, y = small_net()
    exact = exact_hessian(net, x, y)
    draws = 4000
    loss = F.cross_entropy(net(x), y)
    gradient, diagonal = gradient_and_diagonal(loss, list(net.parameters()), stream(), draws)
    off_diagonal = exact.square().sum(1) - exact.diagonal().square()
    assert bool(((diagonal - exact.diagonal()).abs() <= 4 * (off_diagonal / draws).sqrt() + 1e-12).all())
    expected = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
    assert torch.allclose(gradient, flat(expected))
    assert all(p.grad is None for p in net.parameters())


def test_one_draw_is_exact_for_a_diagonal_hessian():
    w = torch.randn(20, dtype=torch.float64, requires_grad=True)
    h = torch.randn(20, dtype=torch.float64)
    _, diagonal = gradient_and_diagonal((h * w.square()).sum() / 2, [w], stream())
    assert torch.allclose(diagonal, h)


def test_parameters_that_the_loss_does_not_know_have_zeros():
    w, unused = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    assert gradient_of((w**2).sum(), [w, unused]).tolist() == [2, 2, 2, 0, 0]
    gradient, diagonal = gradient_and_diagonal((w**2).sum(), [unused, w], stream())
    assert gradient.tolist() == [0, 0, 2, 2, 2]
    assert diagonal.tolist() == [0, 0, 2, 2, 2]
    linear = gradient_and_diagonal(w.sum(), [w], stream())
    assert linear[1].tolist() == [0, 0, 0]


def test_averages_are_the_closed_forms_of_their_sums():
    torch.manual_seed(1)
    gradients, diagonals = torch.randn(12, 4, dtype=torch.float64), torch.randn(12, 4, dtype=torch.float64)
    smoothed = Smoothed(0.9, 0.999)
    for t in range(1, 13):
        g, h = smoothed.add(gradients[t - 1], diagonals[t - 1])
        places = torch.arange(1, t + 1, dtype=torch.float64)
        by = 0.1 * 0.9 ** (t - places)
        assert torch.allclose(g, (by[:, None] * gradients[:t]).sum(0) / (1 - 0.9**t))
        by = 0.001 * 0.999 ** (t - places)
        assert torch.allclose(h, ((by[:, None] * diagonals[:t].square()).sum(0) / (1 - 0.999**t)).sqrt())


def test_constants_come_back_as_they_are():
    smoothed = Smoothed()
    g, d = torch.tensor([1.0, -2.0]).double(), torch.tensor([-3.0, 4.0]).double()
    for _ in range(5):
        mean, root = smoothed.add(g, d)
        assert mean.tolist() == pytest.approx(g.tolist())
        assert root.tolist() == pytest.approx([3, 4])


def test_averages_survive_a_checkpoint():
    first, second = Smoothed(), Smoothed()
    second.load_state_dict(first.state_dict())
    for seed in range(3):
        torch.manual_seed(seed)
        g, d = torch.randn(5), torch.randn(5)
        expected = first.add(g, d)
        average = second.add(g, d)
        assert all(torch.equal(a, b) for a, b in zip(average, expected, strict=True))
        fresh = Smoothed()
        fresh.load_state_dict(
            {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in second.state_dict().items()}
        )
        second = fresh
