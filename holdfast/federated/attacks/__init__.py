"""What malicious clients do: poison their labels, and send something other than their update.

A1, A2 and A3 are those of Ditto (Section 2). The others are published attacks that users measure defences with.
Personal models are never touched.
"""

from holdfast.errors import ConfigError, nearest
from holdfast.federated.attacks.base import Attack
from holdfast.federated.attacks.local_updates import Gaussian, LabelPoisoning, ModelReplacement, RandomUpdates, SignFlip
from holdfast.federated.attacks.omniscient import InnerProduct, LittleIsEnough, MinMax, alie_z
from holdfast.federated.attacks.poisoning import malicious_clients, poison_labels

__all__ = [
    "ATTACKS",
    "Attack",
    "Gaussian",
    "InnerProduct",
    "LabelPoisoning",
    "LittleIsEnough",
    "MinMax",
    "ModelReplacement",
    "RandomUpdates",
    "SignFlip",
    "alie_z",
    "attack_named",
    "malicious_clients",
    "poison_labels",
]

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack
    for attack in (
        LabelPoisoning,
        RandomUpdates,
        ModelReplacement,
        SignFlip,
        Gaussian,
        LittleIsEnough,
        InnerProduct,
        MinMax,
    )
}


def attack_named(name: str) -> type[Attack]:
    """The attack of that name; an unknown one is answered with the nearest known."""
    if name not in ATTACKS:
        raise ConfigError(f"there is no attack {name!r}{nearest(name, ATTACKS)}")
    return ATTACKS[name]
