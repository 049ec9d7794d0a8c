import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.streams import torch_stream
from holdfast.theory.spurious import Mixture

COUNTS = torch.tensor([[30, 10, 0], [5, 40, 15]])


def mixture(dimension=20, counts=COUNTS):
    return Mixture.orthogonal(dimension, 0.05, 0.3, counts, torch_stream(0, "mixture"))


def test_features_are_orthogonal_and_as_strong_as_asked():
    found = mixture()
    features = torch.cat([found.core, found.spurious])
    expected = torch.diag(torch.tensor([1.0, 1.0, 6.0, 6.0, 6.0]))
    torch.testing.assert_close(features @ features.T, expected, rtol=1e-5, atol=1e-5)
    assert (found.n, found.dimension) == (100, 20)


def test_groups_have_exactly_the_sizes_that_were_given():
    sample = mixture().draw(torch_stream(0, "draw"), core_noise=0, spurious_noise=0, other_noise=0)
    cells = (sample.labels > 0).long() * 3 + sample.attributes
    assert torch.bincount(cells, minlength=6).tolist() == COUNTS.flatten().tolist()
    first = mixture()
    torch.testing.assert_close(sample.inputs[-1], first.core[1] + first.spurious[2])


def test_noise_has_its_strength_along_each_kind_of_direction():
    found = mixture(counts=1000 * COUNTS)
    sample = found.draw(torch_stream(0, "draw"), core_noise=0.5, spurious_noise=2.0, other_noise=0.1)
    noise = sample.inputs - found.core[(sample.labels > 0).long()] - found.spurious[sample.attributes]
    directions = torch.nn.functional.normalize(torch.cat([found.core, found.spurious]))
    along = noise @ directions.T
    torch.testing.assert_close(along.std(dim=0), torch.tensor([0.5, 0.5, 2, 2, 2]), rtol=0.02, atol=0)
    rest = noise - along @ directions
    assert float(rest.square().sum(dim=1).mean()) == pytest.approx(15 * 0.01, rel=0.02)


def test_too_few_dimensions_for_orthogonal_features_are_refused():
    with pytest.raises(ConfigError, match="5 orthogonal features"):
        mixture(dimension=4)
