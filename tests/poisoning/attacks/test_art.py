"""Beside the Adversarial Robustness Toolbox (1.20), on shared cases; skipped where it is not installed.

Where the two differ, the difference is written down here: what it is, and that it is all there is.
"""

import warnings
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.data import Examples
from holdfast.poisoning.attacks import (
    Backdoor,
    Brewing,
    BullseyePolytope,
    CleanLabelBackdoor,
    FeatureCollision,
    GradientMatching,
    HiddenTrigger,
    random_patch,
    steepest_bases,
)
from holdfast.poisoning.attacks.gradient_matching import adversarial_gradient
from holdfast.primitives.pgd import Pgd
from tests.poisoning.attacks.toy import tiny_case, tiny_examples, tiny_net

# ART writes its settings to the home at the first import; two processes that do so at once read half a file.
with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as home:
    warnings.simplefilter("ignore")
    patch.setenv("HOME", home)
    pytest.importorskip("art")
    from art.attacks import poisoning as art
    from art.attacks.poisoning import bullseye_polytope_attack
    from art.attacks.poisoning.hidden_trigger_backdoor import hidden_trigger_backdoor_pytorch
    from art.estimators.classification import PyTorchClassifier
    from art.preprocessing.standardisation_mean_std.pytorch import StandardisationMeanStdPyTorch


def wrapped(model, **options):
    return PyTorchClassifier(
        model, nn.CrossEntropyLoss(), (3, 8, 8), 3, clip_values=(0.0, 1.0), device_type="cpu", **options
    )


def features_layer(classifier):
    """The layer whose output is the input of the head."""
    return classifier.layer_names[-2]


def test_gradient_matching_has_the_same_objective_at_every_step():
    """ART keeps its perturbations small by a tanh where we project, so its steps differ; what they minimise is B."""
    train, targets, bases = tiny_case()
    model = tiny_net()
    x, y = train.gather(bases)
    attack = art.GradientMatchingAttack(
        wrapped(model), 0.1, epsilon=16 / 255, max_trials=1, max_epochs=12, clip_values=(0.0, 1.0), verbose=0
    )
    attack.initial_epoch = 0
    attack._initialize_poison(targets.images.numpy(), np.array([1]), x.numpy(), y.numpy())
    seen = []
    attack.backdoor_model.register_forward_hook(
        lambda _, __, output: seen.append((float(output[0].detach()), output[1].detach().clone()))
    )
    attack._poison__pytorch(x.numpy(), y.numpy())
    wanted = adversarial_gradient(model, targets.images, 1)
    objective = GradientMatching(augment=None).objective([model], [wanted], y)
    ours = [float(objective(poisons, torch.Generator()).detach()) for _, poisons in seen]
    assert len(seen) == 13 and seen[-1][0] < seen[0][0]
    assert ours == pytest.approx([theirs for theirs, _ in seen], abs=1e-5)
    brewing = Brewing(16 / 255, steps=40, step_size=0.01)
    projected = GradientMatching(brewing, None).craft(model, train, targets, bases)
    assert projected.objective < seen[0][0]


def test_sleeper_agent_chooses_the_same_bases():
    train, model = tiny_examples(60), tiny_net()
    standard = StandardisationMeanStdPyTorch(mean=0.0, std=1.0, device_type="cpu")
    classifier = wrapped(model)
    classifier.preprocessing = standard
    classifier._clip_values = np.array([0.0, 1.0], dtype=np.float32)
    mine = (train.labels == 1).nonzero().flatten()
    attack = object.__new__(art.SleeperAgentAttack)
    attack.substitute_classifier, attack.device_name = classifier, "cpu"
    x, y = train.gather(mine)
    theirs = attack._select_poison_indices(classifier, x.numpy(), y.numpy(), 6)
    assert sorted(mine[theirs].tolist()) == steepest_bases(model, train, 1, 6).tolist()


def test_bullseye_polytope_has_the_same_objective_at_every_step():
    """Given the target's features: ART itself computes them from the bases, so that its attack has no target."""
    train, targets, bases = tiny_case()
    model = tiny_net()
    seen = []
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
    brewing = Brewing(steps=10, step_size=0.01, signed=False, decay=False, start="bases")
    poisoned = BullseyePolytope(brewing).craft(model, train, targets, bases)
    hook.remove()
    classifier = wrapped(model)
    layer = features_layer(classifier)
    centre = classifier.get_activations(targets.images.numpy(), layer, 1, framework=True).detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = [
            float(
                bullseye_polytope_attack.loss_from_center(
                    [classifier], [centre], lambda poisons=poisons: poisons, 1, False, layer
                )
            )
            for poisons in seen[1:]
        ]
    assert [*poisoned.trace.tolist(), poisoned.objective] == pytest.approx(theirs, abs=1e-5)


def test_feature_collision_has_the_same_two_distances_and_steps():
    """ART adds distances where we (and the paper) add their squares, and steps along the gradient of the distance."""
    train, targets, bases = tiny_case(poisons=1)
    model = tiny_net()
    classifier = wrapped(model)
    attack = art.FeatureCollisionAttack(
        classifier, targets.images.numpy(), features_layer(classifier), similarity_coeff=30.0, verbose=False
    )
    base = train.inputs.values[bases]
    start = base + 0.3 * (targets.images - base)
    goal, at = (
        classifier.get_activations(images.numpy(), features_layer(classifier), 1) for images in (targets.images, start)
    )
    beta = 30.0 * (at.shape[-1] / base.numel()) ** 2
    theirs = attack.objective(at, goal, base.numpy()[0], start.numpy())
    apart, moved = np.linalg.norm(at - goal), np.linalg.norm((start - base).numpy())
    assert theirs == pytest.approx(apart + beta * moved, rel=1e-5)
    size, weight = 0.05, 0.4
    ours = FeatureCollision(beta=weight, step_size=size, steps=1, tolerance=0)
    poisoned = ours.craft(model, train, targets, bases)
    assert float(poisoned.trace[0]) == pytest.approx(apart**2 + weight * moved**2, rel=1e-4)
    attack.learning_rate = 2 * size * float(apart)
    forward = attack.forward_step(start.numpy().copy())
    attack.learning_rate = 2 * size * weight / beta
    backward = attack.backward_step(base.numpy(), at, forward)
    assert np.abs(backward - base.numpy() - poisoned.perturbations.numpy()).max() <= 0.51 / 255


def test_the_hidden_trigger_has_the_same_loss_at_every_step(monkeypatch):
    """For one base: for more, ART may pair several with the same patched image."""
    images, model = tiny_examples(3).inputs.values, tiny_net()
    train = Examples.of(images, [0, 1, 2])
    door = Backdoor(random_patch(3, 3, 0), 2, 1, place=(5, 5))
    poisoned = HiddenTrigger(0.2, steps=12, step_size=0.3, tolerance=0).craft(model, train, door, torch.tensor([1]))
    losses = []
    monkeypatch.setattr(
        hidden_trigger_backdoor_pytorch.LossMeter, "update", lambda self, value, count=1: losses.append(value)
    )
    monkeypatch.setattr(hidden_trigger_backdoor_pytorch.LossMeter, "val", 0.0, raising=False)
    monkeypatch.setattr(hidden_trigger_backdoor_pytorch.LossMeter, "avg", 0.0, raising=False)
    classifier = wrapped(model)
    trigger = art.PoisoningAttackBackdoor(lambda x: door.paste(torch.from_numpy(x), torch.Generator()).numpy())
    one_hot = np.eye(3, dtype=np.float32)
    attack = hidden_trigger_backdoor_pytorch.HiddenTriggerBackdoorPyTorch(
        classifier,
        target=one_hot[1],
        source=one_hot[2],
        feature_layer=features_layer(classifier),
        backdoor=trigger,
        eps=0.2,
        learning_rate=0.3,
        stopping_threshold=0.0,
        max_iter=12,
        batch_size=1,
        poison_percent=1.0,
        verbose=False,
    )
    poisons, chosen = attack.poison(images.numpy(), one_hot)
    assert chosen.tolist() == [1]
    assert poisoned.trace.tolist() == pytest.approx(losses, rel=1e-4)
    assert np.abs(poisons - images[1:2].numpy() - poisoned.perturbations.numpy()).max() <= 0.51 / 255


def test_the_clean_label_backdoor_hardens_bases_alike():
    """Outside of the patch, which ART pastes in full and we within the budget; ART goes by predicted labels."""
    images, model = tiny_examples(8).inputs.values, tiny_net()
    labels = model(images).argmax(1)
    adversarial = int(labels.mode().values)
    train = Examples.of(images, labels, class_names=["a", "b", "c"])
    door = Backdoor(random_patch(3, 3, 0), (adversarial + 1) % 3, adversarial, "bottom-right")
    mine = (labels == adversarial).nonzero().flatten()
    noise = Pgd(8 / 255, steps=5, step_size=2 / 255)
    poisoned = CleanLabelBackdoor(noise).craft(model, train, door, mine)
    trigger = art.PoisoningAttackBackdoor(lambda x: door.paste(torch.from_numpy(x), torch.Generator()).numpy())
    one_hot = np.eye(3, dtype=np.float32)[labels.numpy()]
    attack = art.PoisoningAttackCleanLabelBackdoor(
        trigger,
        wrapped(model),
        np.eye(3, dtype=np.float32)[adversarial],
        pp_poison=0.99,
        eps=8 / 255,
        eps_step=2 / 255,
        max_iter=5,
    )
    poisons, _ = attack.poison(images.numpy(), one_hot)
    apart = torch.from_numpy(poisons)[mine] - images[mine]
    changed = apart.flatten(1).any(1)
    assert changed.any()
    outside = torch.ones(8, 8, dtype=torch.bool)
    outside[5:, 5:] = False
    assert (apart - poisoned.perturbations)[changed][..., outside].abs().max() <= 0.51 / 255
