import math
from dataclasses import dataclass

import pytest
import torch

from holdfast.streams import torch_stream
from holdfast.theory.spurious import (
    ZETA,
    Mixture,
    MixtureSample,
    TwoLayer,
    early_gap,
    early_noise_bound,
    early_outputs,
    linear_surrogate,
    surrogate_features,
)

RATE = 1.0
SIGNS = torch.tensor([-0.5, 0.5])


def group_sizes(n, majority):
    """Two attribute values, of which each class has its own in a share of `majority`."""
    large = round(n / 2 * majority)
    return torch.tensor([[large, n // 2 - large], [n // 2 - large, large]])


@dataclass
class Trained:
    """A mixture, its sample and the network after 0, 1, 2, ... steps."""

    mixture: Mixture
    sample: MixtureSample
    networks: list[TwoLayer]

    def gap(self, steps):
        """Majority minus minority mean output in class +1."""
        outputs = self.networks[steps](self.sample.inputs)
        majority, minority = (outputs[self.group(attribute)].mean() for attribute in (1, 0))
        return float(majority - minority)

    def group(self, attribute, label=1):
        return (self.sample.labels == label) & (self.sample.attributes == attribute)


def train(*, dimension=100, n=1000, width=600, core=0.05, spurious=0.3, majority=0.95, steps=4, seed=0):
    mixture = Mixture.orthogonal(dimension, core, spurious, group_sizes(n, majority), torch_stream(seed, "mixture"))
    noise = math.sqrt(1 - core - spurious)
    sample = mixture.draw(torch_stream(seed, "sample"), core_noise=noise, spurious_noise=noise, other_noise=noise)
    networks = [TwoLayer.symmetric(width, dimension, torch_stream(seed, "network"))]
    for _ in range(steps):
        networks.append(networks[-1].step(sample.inputs, sample.labels, RATE))
    return Trained(mixture, sample, networks)


@pytest.fixture(scope="module")
def wide():
    """The setting of the specification: d = 200, n = 3000, m = 1500."""
    return train(dimension=200, n=3000, width=1500)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_outputs_on_bare_features_are_the_predicted_ones(wide, steps):
    network, expected = wide.networks[steps], early_outputs(wide.mixture, RATE, steps)
    for features, predicted in ((wide.mixture.core, expected.core), (wide.mixture.spurious, expected.spurious)):
        assert float(SIGNS @ network(features)) == pytest.approx(float(SIGNS @ predicted), rel=0.4)


@pytest.mark.parametrize(("steps", "tolerance"), [(1, 0.1), (4, 0.2)])
def test_the_odd_part_of_the_output_is_predicted_closely(wide, steps, tolerance):
    """ReLU's even part bends outputs upwards on both sides; what is linear in the input is the prediction."""
    network, features = wide.networks[steps], wide.mixture.spurious
    odd = (network(features) - network(-features)) / 2
    predicted = early_outputs(wide.mixture, RATE, steps).spurious
    torch.testing.assert_close(odd, predicted, rtol=tolerance, atol=0)


def test_the_printed_constant_is_an_alignment_and_twenty_times_too_large_for_an_output(wide):
    printed = math.sqrt(2 / 200) * ZETA * float(wide.mixture.spurious[1].square().sum()) * (0.475 - 0.025)
    assert printed == pytest.approx(1.35, rel=1e-3)
    beta = linear_surrogate(wide.sample.inputs, wide.sample.labels, RATE, 1)
    assert float(wide.mixture.spurious[1] @ beta) == pytest.approx(printed, rel=0.05)
    assert printed / float(early_outputs(wide.mixture, RATE, 1).spurious[1]) == pytest.approx(20)
    assert printed > 10 * float(wide.networks[1](wide.mixture.spurious)[1])


@pytest.mark.parametrize("steps", [1, 4])
def test_the_ratio_of_outputs_is_the_ratio_of_strengths_and_size_gaps(wide, steps):
    network = wide.networks[steps]
    ratio = float(SIGNS @ network(wide.mixture.spurious)) / float(SIGNS @ network(wide.mixture.core))
    assert ratio == pytest.approx(60 * (1425 - 75) / (10 * 1500), rel=0.4)


@pytest.mark.parametrize("steps", [1, 4])
def test_majority_and_minority_of_a_class_separate_by_the_predicted_gap(wide, steps):
    predicted = early_gap(wide.mixture, RATE, steps, majority=1, minority=0)
    assert predicted == pytest.approx(0.135 * steps, rel=1e-4)
    assert wide.gap(steps) == pytest.approx(predicted, rel=0.4)
    outputs = wide.networks[steps](wide.sample.inputs)
    majority, minority = outputs[wide.group(1)], outputs[wide.group(0)]
    threshold = float(majority.mean() + minority.mean()) / 2
    assert bool((majority > threshold).all())
    assert bool((minority < threshold).all())


def test_one_step_of_the_linear_surrogate_is_the_closed_form():
    trained = train(steps=0)
    inputs, labels = trained.sample.inputs, trained.sample.labels
    expected = RATE / 1000 * math.sqrt(2 / 100) * ZETA * inputs.T @ labels
    torch.testing.assert_close(linear_surrogate(inputs, labels, RATE, 1), expected)


def test_steps_of_the_linear_surrogate_are_gradient_descent_on_the_squared_loss():
    trained = train(dimension=10, n=40, steps=0)
    features = surrogate_features(trained.sample.inputs)
    beta = torch.zeros(10, requires_grad=True)
    optimizer = torch.optim.SGD([beta], RATE)
    for _ in range(3):
        optimizer.zero_grad()
        ((features @ beta - trained.sample.labels).square().sum() / 80).backward()
        optimizer.step()
    found = linear_surrogate(trained.sample.inputs, trained.sample.labels, RATE, 3)
    torch.testing.assert_close(found, beta.detach())


@pytest.mark.parametrize("dimension", [50, 100, 200])
def test_the_network_stays_as_close_to_its_surrogate_as_the_theorem_says(dimension):
    """For features of a twentieth of the input's energy; the theorem's constants assume weak features."""
    trained = train(dimension=dimension, n=15 * dimension, width=8 * dimension, core=0.01, spurious=0.05, steps=3)
    for steps in (1, 2, 3):
        inputs, labels = trained.sample.inputs, trained.sample.labels
        surrogate = surrogate_features(inputs) @ linear_surrogate(inputs, labels, RATE, steps)
        gap = float((trained.networks[steps](inputs) - surrogate).square().mean())
        assert gap < RATE**2 * steps**2 / dimension**2
        assert gap < 0.2 * float(surrogate.square().mean())


def test_the_gap_grows_with_time_with_the_feature_and_with_the_majority():
    by_time = [train().gap(steps) for steps in (0, 1, 2, 3, 4)]
    by_strength = [train(spurious=energy, steps=2).gap(2) for energy in (0.05, 0.1, 0.2, 0.4)]
    by_majority = [train(majority=share, steps=2).gap(2) for share in (0.5, 0.6, 0.8, 0.95)]
    for gaps in (by_time, by_strength, by_majority):
        assert gaps == sorted(gaps)
        assert gaps[-1] > 2 * max(gaps[1], 0.01)


def test_the_predicted_gap_is_linear_in_time_strength_and_size_gap():
    def predicted(steps=1, spurious=0.1, majority=0.6):
        return early_gap(train(spurious=spurious, majority=majority, steps=0).mixture, RATE, steps, 1, 0)

    assert predicted(steps=3) == pytest.approx(3 * predicted())
    assert predicted(spurious=0.3) == pytest.approx(3 * predicted(), rel=1e-5)
    assert predicted(majority=0.8) == pytest.approx(3 * predicted())


def test_groups_of_equal_size_do_not_separate():
    equal, unequal = train(majority=0.5), train()
    assert early_gap(equal.mixture, RATE, 4, 1, 0) == 0
    assert abs(equal.gap(4)) < 0.05 * unequal.gap(4)


def test_an_attribute_that_is_nobodys_majority_hardly_moves():
    counts = torch.tensor([[450, 25, 25], [25, 450, 20]])
    mixture = Mixture.orthogonal(100, 0.05, 0.3, counts, torch_stream(0, "mixture"))
    outputs = early_outputs(mixture, RATE, 1).spurious
    assert abs(float(outputs[2])) == pytest.approx(5 / 425 * float(outputs[1]), rel=1e-4)


def test_noise_along_the_features_spreads_a_group_by_no_more_than_the_bound():
    counts = group_sizes(20_000, 0.9)
    mixture = Mixture.orthogonal(50, 0.2, 0.1, counts, torch_stream(0, "mixture"))
    sample = mixture.draw(torch_stream(0, "sample"), core_noise=0.7, spurious_noise=1.2, other_noise=0)
    outputs = surrogate_features(sample.inputs) @ linear_surrogate(sample.inputs, sample.labels, RATE, 1)
    bound = early_noise_bound(mixture, RATE, 1, core_noise=0.7, spurious_noise=1.2)
    spread = float(outputs[(sample.labels == 1) & (sample.attributes == 1)].std())
    assert bound / math.sqrt(2) * 0.97 < spread < 1.03 * bound
