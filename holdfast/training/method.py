"""A method is what changes about plain training: a policy over the data, an objective, or both."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.training.objective import CrossEntropy, Objective
from holdfast.training.policy import Policy, Uniform


@dataclass(frozen=True)
class Method:
    """A policy and an objective that belong together, as GroupDRO's balanced sampling and its loss do.

    Attributes:
        policy: which examples, how often, with which weight.
        objective: what is minimised on them.
    """

    policy: Policy = field(default_factory=Uniform)
    objective: Objective = field(default_factory=CrossEntropy)


def as_method(what: Method | Policy | Objective | None) -> Method:
    """A policy alone minimises the cross-entropy; an objective alone shuffles the whole set."""
    if what is None:
        return Method()
    if isinstance(what, Policy):
        return Method(policy=what)
    if isinstance(what, Objective):
        return Method(objective=what)
    return what
