"""Attacks on training data, as a test bed for defences.

An attack is a frozen dataclass of its settings with a `craft` method; it gives a `PoisonedSet`, which is applied to a
training set, saved and loaded. `train_victim` trains on it, with or without a defence, and tells how often the attacker
gets what he wants. Everything speaks pixels from 0 to 1: normalisation is part of the model.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.poisoning.attacks.bullseye_polytope import BullseyePolytope
    from holdfast.poisoning.attacks.convex_polytope import ConvexPolytope
    from holdfast.poisoning.attacks.crafting.aims import Aim, Backdoor, Targets, random_patch
    from holdfast.poisoning.attacks.crafting.augment import RandomShift
    from holdfast.poisoning.attacks.crafting.bases import random_bases, similar_bases, steepest_bases
    from holdfast.poisoning.attacks.crafting.brewing import Brewing
    from holdfast.poisoning.attacks.crafting.pixels import Normalised, in_pixels
    from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet
    from holdfast.poisoning.attacks.crafting.surrogates import staggered_surrogates, train_surrogate
    from holdfast.poisoning.attacks.crafting.victims import (
        SETTINGS,
        Answers,
        FrozenExtractor,
        Victim,
        ask,
        renew_head,
        train_victim,
    )
    from holdfast.poisoning.attacks.feature_collision import FeatureCollision
    from holdfast.poisoning.attacks.gradient_matching import GradientMatching
    from holdfast.poisoning.attacks.meta_poison import MetaPoison
    from holdfast.poisoning.attacks.patch_backdoors import CleanLabelBackdoor, HiddenTrigger
    from holdfast.poisoning.attacks.public_benchmark.files import Setup, read_package, read_setups
    from holdfast.poisoning.attacks.sleeper_agent import SleeperAgent
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "SETTINGS",
    "Aim",
    "Answers",
    "Backdoor",
    "Brewing",
    "BullseyePolytope",
    "CleanLabelBackdoor",
    "ConvexPolytope",
    "FeatureCollision",
    "FrozenExtractor",
    "GradientMatching",
    "HiddenTrigger",
    "MetaPoison",
    "Normalised",
    "PoisonedSet",
    "RandomShift",
    "Setup",
    "SleeperAgent",
    "Targets",
    "Victim",
    "ask",
    "in_pixels",
    "random_bases",
    "random_patch",
    "read_package",
    "read_setups",
    "renew_head",
    "similar_bases",
    "staggered_surrogates",
    "steepest_bases",
    "train_surrogate",
    "train_victim",
]
