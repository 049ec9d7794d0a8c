import torch
import torch.nn.functional as F

from holdfast.primitives.curvature import flat
from holdfast.primitives.per_example import per_example_gradients


def test_they_equal_a_loop_and_their_mean_the_gradient_of_the_batch():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(48, 4)
    )
    net = net.double().eval()
    x, y = torch.randn(9, 1, 6, 6, dtype=torch.float64), torch.randint(4, (9,))
    gradients = per_example_gradients(net, x, y, chunk=4)
    trained = list(net.parameters())
    for row, one, label in zip(gradients, x, y, strict=True):
        alone = torch.autograd.grad(F.cross_entropy(net(one[None]), label[None]), trained)
        assert torch.allclose(row, flat(alone), atol=1e-9)
    whole = flat(torch.autograd.grad(F.cross_entropy(net(x), y), trained))
    assert torch.allclose(gradients.mean(0), whole, atol=1e-9)


def test_frozen_parameters_are_left_out():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    net[0].requires_grad_(False)
    assert per_example_gradients(net, torch.randn(5, 3), torch.zeros(5, dtype=torch.int64)).shape == (5, 10)
