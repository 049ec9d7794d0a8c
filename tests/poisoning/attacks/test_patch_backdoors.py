import itertools

import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import ConfigError, DataError
from holdfast.poisoning.attacks import Backdoor, CleanLabelBackdoor, HiddenTrigger, random_bases, random_patch
from holdfast.poisoning.attacks.patch_backdoors import greedy_pairs
from holdfast.primitives.pgd import Pgd
from tests.poisoning.attacks.toy import backdoor, control, splits, surrogate, tiny_case, tiny_net, victim


def slow_pairs(features, goals):
    distances = torch.cdist(features, goals)
    pairs, left = {}, set(itertools.product(range(len(features)), range(len(goals))))
    while left:
        row, column = min(left, key=lambda pair: float(distances[pair]))
        pairs[row] = column
        left = {pair for pair in left if pair[0] != row and pair[1] != column}
    return [pairs[row] for row in range(len(features))]


def test_pairs_are_one_to_one_and_the_nearest_first():
    """A public implementation strikes out the pair, not its row and column, and pairs one goal with several."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        features, goals = torch.randn(9, 3, generator=generator), torch.randn(9, 3, generator=generator)
        pairs = greedy_pairs(features, goals)
        assert sorted(pairs.tolist()) == list(range(9)) and pairs.tolist() == slow_pairs(features, goals)
    assert sorted(greedy_pairs(torch.zeros(4, 2), torch.zeros(4, 2)).tolist()) == [0, 1, 2, 3]


def test_clean_label_poisons_are_adversarial_noise_under_the_patch_within_the_budget():
    train, _, bases = tiny_case()
    door = Backdoor(random_patch(3, 3, 0), 2, 1, "bottom-right")
    model, noise = tiny_net(), Pgd(8 / 255, steps=20, step_size=2 / 255)
    poisoned = CleanLabelBackdoor(noise).craft(model, train, door, bases)
    clean = train.inputs.values[bases]
    hard = noise(model, clean, train.labels[bases])
    outside = torch.ones(8, 8, dtype=torch.bool)
    outside[5:, 5:] = False
    assert ((poisoned.perturbations - (hard - clean))[..., outside]).abs().max() <= 0.51 / 255
    towards = (door.patch - clean[..., 5:, 5:]).clamp(-8 / 255, 8 / 255)
    assert (poisoned.perturbations[..., 5:, 5:] - towards).abs().max() <= 0.51 / 255
    poisons, labels = poisoned.apply(train).gather(bases)
    assert F.cross_entropy(model(poisons), labels) > F.cross_entropy(model(clean), labels)


def test_the_hidden_trigger_moves_features_to_those_of_patched_images():
    train, _, bases = tiny_case()
    door = Backdoor(random_patch(3, 3, 0), 2, 1)
    poisoned = HiddenTrigger(epsilon=0.3, steps=80, step_size=0.2).craft(tiny_net(), train, door, bases)
    assert poisoned.trace[-1] < 0.5 * poisoned.trace[0]
    assert poisoned.objective == pytest.approx(float(poisoned.trace[-1]), rel=0.1)
    near = HiddenTrigger(epsilon=0.3, steps=80, step_size=0.2, tolerance=float(poisoned.trace[10]))
    assert len(near.craft(tiny_net(), train, door, bases).trace) <= 12


@pytest.mark.parametrize(
    "attack, number, place", [(CleanLabelBackdoor(), 0, "bottom-right"), (HiddenTrigger(16 / 255, 150), 3, "random")]
)
def test_the_backdoor_opens_in_transfer_learning(attack, number, place):
    door = backdoor(number, place)
    bases = random_bases(splits().train, door.adversarial_class, 15, number)
    poisoned = attack.craft(surrogate(), splits().train, door, bases)
    assert victim(poisoned).success > control(poisoned).success + 0.05


def test_what_makes_no_sense_is_refused():
    train, _, _ = tiny_case()
    with pytest.raises(ConfigError):
        HiddenTrigger(epsilon=0)
    few = train.subset([i for i in range(len(train)) if train.labels[i] != 2 or i < 6])
    positions = (few.labels == 1).nonzero().flatten()[:5]
    with pytest.raises(DataError, match="2 examples for 5 bases"):
        HiddenTrigger(steps=1).craft(tiny_net(), few, Backdoor(random_patch(3, 3, 0), 2, 1), positions)
