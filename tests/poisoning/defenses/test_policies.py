import copy
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.data.examples import Splits
from holdfast.errors import ConfigError, DataError
from holdfast.poisoning import Epic
from holdfast.poisoning.defenses import (
    ActivationClustering,
    AsManyAsEpic,
    DeepKnn,
    DpSgd,
    HighestLoss,
    LowestConfidence,
    PrivateCrossEntropy,
    SpectralSignatures,
    privacy_spent,
)
from holdfast.primitives.per_example import per_example_gradients
from holdfast.training import Training, fit
from holdfast.training.batches import Batch
from holdfast.training.objective import Forward
from tests.poisoning.test_epic import N, examples, network, train


def splits() -> Splits:
    return Splits("toy", examples(), examples(1), examples(2))


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (DeepKnn(filter_epochs=3, expected=0.05), None),
        (SpectralSignatures(filter_epochs=3, expected=0.05), N - 3 * 18),
        (ActivationClustering(filter_epochs=3), None),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_filters_train_twice(policy, left: int | None) -> None:
    seen = []
    train(policy, epochs=6, watch=lambda epoch, positions: seen.append(len(set(positions))))
    assert seen[:3] == [N] * 3
    assert seen[3] == seen[-1] < N
    if left is not None:
        assert seen[-1] == left


@pytest.mark.parametrize(
    "policy", [HighestLoss(start=2, every=2, threshold=0.8), LowestConfidence(start=2, every=2)], ids=lambda p: p.name
)
def test_thresholds_drop_for_good(policy) -> None:
    seen: list[set[int]] = []
    train(policy, epochs=8, watch=lambda epoch, positions: seen.append(set(positions)))
    assert len(seen[0]) == len(seen[1]) == N
    assert len(seen[2]) < N
    assert all(later <= earlier for earlier, later in pairwise(seen))


def test_a_threshold_that_leaves_nobody() -> None:
    with pytest.raises(DataError, match="would drop every example"):
        train(HighestLoss(start=0, threshold=0.0), epochs=2)


@pytest.mark.parametrize("by", ["random", "loss", "confidence"])
def test_the_control_drops_as_many_of_each_class(by: str) -> None:
    epic, control = Epic(fraction=0.3, start=2, every=20), AsManyAsEpic(fraction=0.3, start=2, every=20, by=by)  # type: ignore[arg-type]
    for policy in (epic, control):
        train(policy, epochs=21)
    ours, theirs = epic.drops[-1], control.drops[-1]
    assert torch.equal(ours.classes.bincount(minlength=3), theirs.classes.bincount(minlength=3))
    assert set(ours.ids.tolist()) != set(theirs.ids.tolist())


def test_what_epic_names_again_counts_once() -> None:
    """A control that counted it in every round would drop nearly everything."""
    epic, control = (kind(fraction=0.3, start=1, every=1) for kind in (Epic, AsManyAsEpic))
    for policy in (epic, control):
        train(policy, epochs=12)
    ours, theirs = (sum(len(drop.ids) for drop in policy.drops) for policy in (epic, control))
    assert len(control.drops) == 11
    assert theirs <= round(0.3 * N) + 11 * 3 and abs(theirs - ours) <= 0.1 * N


def test_the_control_goes_on_with_whom_epic_named() -> None:
    control, again = (AsManyAsEpic(fraction=0.3, start=1, every=1) for _ in range(2))
    train(control, epochs=3)
    again.load_state_dict(control.state_dict())
    assert torch.equal(again.state_dict()["named"], control.state_dict()["named"])


def private(noise: float, clip: str, norm: float, seed: int = 0) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, its plain mean gradient, and the gradient that the objective gives it."""
    model, data = network(), examples()
    inputs, labels = data.gather(torch.arange(32))
    batch = Batch(inputs, labels, torch.arange(32), torch.ones(32))
    plain = torch.autograd.grad(F.cross_entropy(model(inputs), labels), list(model.parameters()))
    objective = PrivateCrossEntropy(norm, noise, clip)  # type: ignore[arg-type]
    torch.manual_seed(seed)
    loss = objective(Forward(model, batch))
    assert float(loss.detach()) == pytest.approx(float(F.cross_entropy(model(inputs), labels).detach()), rel=1e-5)
    loss.backward()
    found = torch.cat([part.grad.flatten() for part in model.parameters()])  # type: ignore[union-attr]
    return model, torch.cat([part.flatten() for part in plain]), found


def test_without_noise_the_gradient_is_clipped() -> None:
    _, plain, private_gradients = private(0.0, "batch", 0.01)
    torch.testing.assert_close(private_gradients, plain * (0.01 / plain.norm()))
    _, plain, private_gradients = private(0.0, "batch", 100.0)
    torch.testing.assert_close(private_gradients, plain)


def test_single_gradients_are_clipped_one_by_one() -> None:
    model, _, private_gradients = private(0.0, "example", 0.3)
    inputs, labels = examples().gather(torch.arange(32))
    each = per_example_gradients(model, inputs, labels)
    cut = torch.stack([row * min(1.0, 0.3 / float(row.norm())) for row in each])
    torch.testing.assert_close(private_gradients, cut.mean(0))


def test_single_gradients_are_clipped_as_opacus_clips_them() -> None:
    opacus = pytest.importorskip("opacus")
    model, _, private_gradients = private(0.0, "example", 0.3)
    inputs, labels = examples().gather(torch.arange(32))
    wrapped = opacus.GradSampleModule(copy.deepcopy(model))
    wrapped.zero_grad()
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=0.3, expected_batch_size=32
    )
    F.cross_entropy(wrapped(inputs), labels).backward()
    optimizer.pre_step()
    theirs = torch.cat([part.grad.flatten() for part in wrapped.parameters()])
    torch.testing.assert_close(private_gradients, theirs, atol=1e-6, rtol=1e-4)


def test_more_noise_spends_less_privacy() -> None:
    pytest.importorskip("opacus")
    spent = [
        privacy_spent(DpSgd(noise=noise, clip="example"), examples=60000, batch_size=256, epochs=15, delta=1e-5)
        for noise in (1.1, 2.2)
    ]
    assert 0 < spent[1] < spent[0]


def test_with_whole_batches_the_privacy_is_that_of_the_gaussian_mechanism() -> None:
    """T steps of noise s spend at most T / 2s^2 + sqrt(2 T log(1 / delta)) / s."""
    pytest.importorskip("opacus")
    steps, noise, delta = 10, 5.0, 1e-5
    defence = DpSgd(noise=noise, clip="example")
    spent = privacy_spent(defence, examples=50, batch_size=50, epochs=steps, delta=delta)
    bound = steps / (2 * noise**2) + math.sqrt(2 * steps * math.log(1 / delta)) / noise
    assert 0.7 * bound < spent <= bound


@pytest.mark.parametrize("nothing", [DpSgd(noise=1.0), DpSgd(noise=0.0, clip="example")])
def test_no_guarantee_no_epsilon(nothing: DpSgd) -> None:
    with pytest.raises(ConfigError, match="guarantees nothing"):
        privacy_spent(nothing, examples=100, batch_size=10, epochs=1)


def test_noise_has_its_size() -> None:
    differences = []
    for seed in range(40):
        _, plain, private_gradients = private(0.1, "batch", 100.0, seed)
        differences.append(private_gradients - plain)
    assert float(torch.stack(differences).std()) == pytest.approx(10.0, rel=0.05)


def test_more_noise_learns_less() -> None:
    settings = Training(epochs=4, batch_size=32, learning_rate=0.2, select_by="accuracy")
    accuracies = [fit(network(), splits(), DpSgd(noise=noise), settings).test_last.accuracy for noise in (0.0, 3.0)]
    assert accuracies[0] > accuracies[1] + 0.1


def test_single_gradients_need_a_network_that_does_not_mix_examples() -> None:
    mixing = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    with pytest.raises(ConfigError, match="batch norm, which mixes them"):
        fit(mixing, splits(), DpSgd(clip="example"), Training(epochs=1))


@pytest.mark.parametrize(
    "make", [lambda: DeepKnn(expected=0), lambda: DeepKnn(filter_epochs=0), lambda: HighestLoss(every=0),
             lambda: DpSgd(max_norm=0), lambda: DpSgd(noise=-1)]
)  # fmt: skip
def test_options_that_make_no_sense(make) -> None:
    with pytest.raises(ConfigError, match="give"):
        make()
