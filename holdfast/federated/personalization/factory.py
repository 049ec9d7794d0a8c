"""From the methods that users name to those that run.

A client may know whether an attack is strong, and Ditto's candidates for lambda depend on it: so a `Ditto` whose lambda
is ``auto`` or ``parallel`` becomes the method that chooses, once the attack is known. A method that trains jointly with
the shared model may be followed by a post-hoc one.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ConfigError
from holdfast.federated.attacks import ModelReplacement
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.personalization.base import JointPersonalizer, Personalizer
from holdfast.federated.personalization.ditto.adaptive import CANDIDATES, SMALL_LAMBDA, DynamicDitto, ParallelDitto
from holdfast.federated.personalization.ditto.ditto import Ditto


def resolve(methods: Sequence[Personalizer], threat: Threat | None) -> list[Personalizer]:
    """The methods as they run, and what follows on them.

    Args:
        methods: as users name them.
        threat: the attack, if there is one.

    Raises:
        ConfigError: if two methods decide what clients send, or two have the same label.
    """
    running = [lambda_rule(method, strong_attack(threat)) if type(method) is Ditto else method for method in methods]
    joint = [method for method in running if isinstance(method, JointPersonalizer)]
    if len(joint) > 1:
        names = " and ".join(method.name for method in joint)
        raise ConfigError(f"{names} both decide what clients send; run one at a time")
    running += [after for method in joint if (after := method.follow_up()) is not None]
    labels = [method.label for method in running]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"there are two personalization methods {label!r}; run them one after the other")
    return running


def lambda_rule(ditto: Ditto, strong: bool) -> Ditto:
    """Ditto with a fixed lambda as it is, otherwise the way in which clients choose (Ditto, Appendix G.4).

    Args:
        ditto: as users name it.
        strong: whether the attack is strong, see `strong_attack`: all that a client may know of it.
    """
    if not isinstance(ditto.lambda_, str):
        return ditto
    rule = DynamicDitto if ditto.lambda_ == "auto" else ParallelDitto
    candidates = ditto.candidates or CANDIDATES[strong]
    return rule(candidates=candidates, small_lambda=SMALL_LAMBDA[strong], anchor=ditto.anchor)


def strong_attack(threat: Threat | None) -> bool:
    """Whether an attack is strong: any model replacement (A3), or any attack by more than half of the clients."""
    return threat is not None and (isinstance(threat.attack, ModelReplacement) or threat.ratio > 0.5)
