"""From the methods that users name to those that run.

A client may know whether the shared model can be trusted, and Ditto's candidates for lambda depend on it: so a `Ditto`
whose lambda is ``auto`` or ``parallel`` becomes the method that chooses, once it is known what the server expects and
how it defends itself. A method that trains jointly with the shared model may be followed by a post-hoc one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.errors import ConfigError
from holdfast.federated.aggregation import Aggregator
from holdfast.federated.attacks import ModelReplacement
from holdfast.federated.attacks.threat import Threat
from holdfast.federated.expectation import Expected
from holdfast.federated.personalization.base import JointPersonalizer, Personalizer
from holdfast.federated.personalization.ditto.adaptive import CANDIDATES, SMALL_LAMBDA, DynamicDitto, ParallelDitto
from holdfast.federated.personalization.ditto.ditto import Ditto


def resolve(methods: Sequence[Personalizer], strong: bool) -> list[Personalizer]:
    """The methods as they run, and what follows on them.

    Args:
        methods: as users name them.
        strong: whether clients must be on their guard against the shared model, see `strong_attack`.

    Raises:
        ConfigError: if two methods decide what clients send, or two have the same label.
    """
    running = [lambda_rule(method, strong) if type(method) is Ditto else method for method in methods]
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
    candidates = (ditto.strong_candidates if strong else ()) or ditto.candidates or CANDIDATES[strong]
    return rule(
        candidates=candidates,
        small_lambda=SMALL_LAMBDA[strong],
        anchor=ditto.anchor,
        start=ditto.start,
        steps=ditto.steps,
        layers=ditto.layers,
        distance=ditto.distance,
    )


def as_before_starts(methods: Sequence[Personalizer]) -> list[Personalizer]:
    """The methods of a federation that was begun when all personal models of Ditto started from the initial weights."""
    return [replace(method, start="initial") if isinstance(method, Ditto) else method for method in methods]


def strong_attack(threat: Threat | None, aggregator: Aggregator, expected: Expected) -> bool:
    """Whether clients must be on their guard against the shared model.

    They know what everybody knows of the federation: how many malicious clients are expected, and by which rule the
    server combines updates. The attack is strong if that rule promises nothing against so many; what malicious clients
    really do is known to nobody. With ``expect_by="mean"`` it is the documents' definition (Ditto, Appendix G.4), by
    the kind of the rehearsed attack.

    Args:
        threat: the rehearsed attack, looked at for the documents' definition only.
        aggregator: how the server combines updates.
        expected: how many malicious clients it expects.
    """
    if expected.by.expect_by == "mean":
        return strong_in_the_documents(threat)
    return expected.overwhelms(aggregator)


def strong_in_the_documents(threat: Threat | None) -> bool:
    """Ditto's definition: any model replacement (A3), or any attack by more than half of the clients."""
    return threat is not None and (isinstance(threat.attack, ModelReplacement) or threat.ratio > 0.5)
