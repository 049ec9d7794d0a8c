from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import DataError
from holdfast.models import CubicCNN
from holdfast.theory.spurious import (
    Filters,
    PatchSample,
    feature_probes,
    gradient,
    gradient_parts,
    loss,
    scores,
    slopes,
)
from tests.theory.spurious.samples import counted, drawn, network, pure, sample, start


def released():
    """Signed filters with a bias, large enough that every term of the gradient is seen."""
    generator = torch.Generator().manual_seed(2)
    weights, bias = torch.randn(40, 51, generator=generator, dtype=torch.float64).mul(0.3).split([50, 1], dim=1)
    signs = torch.tensor([-1.0] * 20 + [1.0] * 20, dtype=torch.float64)
    return Filters(weights, bias[:, 0], signs)


FORMS = pytest.mark.parametrize("filters", [released(), pure(2 * start())], ids=["released", "pure"])


def test_a_sample_taken_apart_is_the_sample_that_was_drawn():
    patches = drawn(beta_c=0.3, beta_s=0.7)
    apart = PatchSample.of(patches)
    assert (apart.beta_c, apart.beta_s) == (pytest.approx(0.3), pytest.approx(0.7))
    shuffled = torch.tensor(patches.places)[:, :, None].expand(-1, -1, 50)
    torch.testing.assert_close(
        torch.zeros(400, 3, 50).scatter_(1, shuffled, apart.inputs), torch.tensor(patches.inputs)
    )
    cells = list(zip(apart.labels.tolist(), apart.attributes.tolist(), strict=True))
    assert [[(-1, -1), (-1, 1), (1, -1), (1, 1)].index(cell) for cell in cells] == apart.cells.tolist()
    assert apart.alpha_hat == (patches.labels == patches.attributes).mean()


def test_an_empty_sample_is_refused():
    with pytest.raises(DataError, match="draw at least one"):
        PatchSample.of(drawn(0))


def test_taking_examples_keeps_them_whole():
    whole, positions = sample(), torch.tensor([7, 3])
    torch.testing.assert_close(whole.take(positions).inputs, whole.inputs[positions])
    torch.testing.assert_close(scores(pure(start()), whole.take(positions)), scores(pure(start()), whole)[positions])


@FORMS
def test_scores_loss_and_slopes_are_those_of_the_network(filters):
    examples, model = sample(), network(filters)
    f = model.score(examples.inputs)
    torch.testing.assert_close(scores(filters, examples), f)
    target = (examples.labels > 0).long()
    assert loss(filters, examples) == pytest.approx(F.cross_entropy(model(examples.inputs), target).item())
    torch.testing.assert_close(slopes(filters, examples), torch.sigmoid(-examples.labels * f))


@FORMS
def test_the_gradient_is_autograds(filters):
    examples, model = sample(), network(filters)
    F.cross_entropy(model(examples.inputs), (examples.labels > 0).long()).backward()
    ours = gradient(filters, examples)
    torch.testing.assert_close(ours.weights, model.filters.weight.grad, rtol=1e-9, atol=1e-12)
    if filters.bias is not None:
        torch.testing.assert_close(ours.bias, model.filters.bias.grad, rtol=1e-9, atol=1e-12)
    else:
        assert ours.bias is None


def test_the_gradient_in_single_precision_is_right_to_rounding():
    examples, filters = sample(), released()
    single = gradient(Filters(*(part.float() for part in filters)), sample(dtype=torch.float32))
    for ours, exact in zip(single, gradient(filters, examples), strict=True):
        assert float((ours - exact).abs().max() / exact.abs().max()) < 1e-5


def test_the_three_parts_sum_to_autograds_gradient_and_lie_where_they_should():
    examples, weights = sample(), 2 * start()
    model = network(pure(weights))
    F.cross_entropy(model(examples.inputs), (examples.labels > 0).long()).backward()
    core, spurious, noise = gradient_parts(weights, examples)
    torch.testing.assert_close(core + spurious + noise, model.filters.weight.grad, rtol=1e-6, atol=1e-12)
    assert torch.linalg.matrix_rank(core) == torch.linalg.matrix_rank(spurious) == 1
    assert float((core @ examples.spurious).abs().max()) < 1e-12
    assert float((spurious @ examples.core).abs().max()) < 1e-12


def test_the_score_is_a_sum_over_the_cell_and_the_noise():
    examples, weights = sample(), 2 * start()
    core, spurious = weights @ examples.core, weights @ examples.spurious
    signals = examples.labels * 0.2**3 * core.pow(3).sum() + examples.attributes * spurious.pow(3).sum()
    noise = (examples.noise @ weights.T).pow(3).sum(dim=1)
    torch.testing.assert_close(scores(pure(weights), examples), signals + noise, rtol=1e-6, atol=1e-9)


def test_clean_noise_is_orthogonal_to_both_features_and_otherwise_unchanged():
    noisy = sample()
    clean = noisy.with_clean_noise()
    removed = noisy.noise - clean.noise
    assert float((clean.noise @ torch.stack([clean.core, clean.spurious]).T).abs().max()) < 1e-12
    assert torch.linalg.matrix_rank(removed) == 2


def spurious_pull(weights, examples):
    """The largest component of the gradient along v_s."""
    return float((gradient_parts(weights, examples).spurious @ examples.spurious).abs().max())


def test_on_a_balanced_set_the_spurious_pull_is_nothing_beyond_the_outputs():
    """Lemma 3.1: slopes differ from 1/2 by at most |f| / 4, and what is left of the pull is that, not zero."""
    balanced, imbalanced, weights = counted(200, 200), counted(392, 8), start(scale=0.03)
    assert spurious_pull(weights, balanced) < 1e-6 * spurious_pull(weights, imbalanced)
    for scale in (0.03, 0.3, 1.0):
        weights = start(scale=scale)
        largest = float((weights @ balanced.spurious).square().max())
        assert (
            0 < spurious_pull(weights, balanced) <= 3 * largest * float(scores(pure(weights), balanced).abs().max()) / 4
        )
    assert spurious_pull(start(scale=0.06), balanced) / spurious_pull(start(scale=0.03), balanced) == pytest.approx(
        2**5, rel=1e-3
    )


def test_probes_are_the_largest_alignments_whatever_their_sign():
    examples = sample()
    weights = torch.stack([3 * examples.core - examples.spurious, 2 * examples.spurious, -5 * examples.core])
    assert feature_probes(weights, examples.core, examples.spurious) == (pytest.approx(5), pytest.approx(2))


def test_filters_are_a_copy_of_the_models_parameters():
    model = CubicCNN.released(50)
    filters = Filters.of(model)
    filters.weights.zero_()
    assert bool(model.filters.weight.any())
    assert Filters.of(CubicCNN.pure(50)).bias is None


def test_permuting_examples_permutes_scores_and_keeps_the_gradient():
    examples, weights = sample(), pure(2 * start())
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(gradient(weights, examples.take(order)).weights, gradient(weights, examples).weights)
    doubled = replace(examples, beta_c=2 * examples.beta_c)
    assert not torch.allclose(scores(weights, doubled), scores(weights, examples))
