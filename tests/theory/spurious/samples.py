"""Samples and networks that the tests of the patch model share."""

import numpy as np
import torch

from holdfast.data.sets.images.patches import draw_features, make_patches
from holdfast.models import CubicCNN
from holdfast.streams import numpy_stream, torch_stream
from holdfast.theory.spurious import Filters, PatchSample


def drawn(n=400, d=50, seed=0, **strengths):
    features = draw_features(d, numpy_stream(seed, "features"))
    return make_patches(n, features, numpy_stream(seed, "examples"), **strengths)


def sample(n=400, d=50, seed=0, dtype=torch.float64, **strengths):
    return PatchSample.of(drawn(n, d, seed, **strengths), dtype)


def counted(aligned, opposed, seed=0, **strengths):
    """A clean sample with exactly this many examples in S1 and in S2, half of each in either class."""
    n = aligned + opposed
    clean = sample(n, seed=seed, **strengths).with_clean_noise()
    labels = torch.tensor(np.resize([-1.0, 1.0], n))
    attributes = torch.where(torch.arange(n) < aligned, labels, -labels)
    return PatchSample(labels, attributes, clean.noise, clean.core, clean.spurious, clean.beta_c, clean.beta_s)


def start(seed=0, d=50, n_filters=40, scale=1.0):
    """Filters in the paper's form, (filters, d)."""
    weights = torch.rand(n_filters, d, generator=torch_stream(seed, "start"), dtype=torch.float64)
    return scale * (2 * weights - 1) / d**0.5


def pure(weights):
    return Filters(weights, None, torch.ones(len(weights), dtype=weights.dtype))


def network(filters):
    """The same network as a module."""
    n_filters, d = filters.weights.shape
    signed = bool((filters.signs < 0).any())
    model = CubicCNN(d, n_filters, bias=filters.bias is not None, signed=signed).to(filters.weights.dtype)
    with torch.no_grad():
        model.filters.weight.copy_(filters.weights)
        if filters.bias is not None:
            model.filters.bias.copy_(filters.bias)
    assert torch.equal(model.signs, filters.signs)
    return model
