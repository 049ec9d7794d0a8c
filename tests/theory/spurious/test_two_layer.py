import math

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.streams import torch_stream
from holdfast.theory.spurious import ZETA, TwoLayer, Units


@pytest.mark.parametrize("width", [2, 34, 1500])
@pytest.mark.parametrize("n", [1, 101])
def test_the_output_at_the_start_is_exactly_zero(width, n):
    network = TwoLayer.symmetric(width, 37, torch_stream(0, "network"))
    inputs = torch.randn(n, 37, generator=torch_stream(0, "inputs"))
    assert torch.equal(network(inputs), torch.zeros(n))
    assert set(network.first.output.tolist()) <= {-1.0, 1.0}


def test_the_output_is_the_formula_and_a_step_is_autograds():
    generator = torch_stream(1, "everything")
    hidden = torch.randn(60, 12, generator=generator, dtype=torch.float64, requires_grad=True)
    output = torch.randn(60, generator=generator, dtype=torch.float64, requires_grad=True)
    inputs = torch.randn(30, 12, generator=generator, dtype=torch.float64)
    labels = 2.0 * torch.randint(2, (30,), generator=generator) - 1
    first, second = (Units(hidden.detach()[half], output.detach()[half]) for half in (slice(30), slice(30, 60)))
    network = TwoLayer(first, second)
    f = torch.relu(inputs @ hidden.T / math.sqrt(12)) @ output / math.sqrt(60)
    torch.testing.assert_close(network(inputs), f.detach())
    ((f - labels).square().sum() / 60).backward()
    stepped = network.step(inputs, labels, 0.7)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([stepped.first.hidden, stepped.second.hidden]), hidden - 0.7 * hidden.grad)
        torch.testing.assert_close(torch.cat([stepped.first.output, stepped.second.output]), output - 0.7 * output.grad)


def test_zeta_is_the_mean_slope_of_the_activation():
    normal = torch.randn(100_000, generator=torch_stream(0, "normal"), requires_grad=True)
    torch.relu(normal).sum().backward()
    assert float(normal.grad.mean()) == pytest.approx(ZETA, abs=0.01)


def test_an_odd_width_cannot_be_symmetric():
    with pytest.raises(ConfigError, match="width 7 is odd"):
        TwoLayer.symmetric(7, 3, torch_stream(0, "network"))
