"""A method is what changes about plain training: a policy over the data, an objective, a last step."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.errors import expect_kind
from holdfast.training.objective import CrossEntropy, Objective
from holdfast.training.policy import PlannedTraining, Policy, Uniform
from holdfast.training.post_training import PostTraining


@dataclass(frozen=True)
class Method:
    """What belongs together, as GroupDRO's balanced sampling and its loss do.

    Attributes:
        policy: which examples, how often, with which weight.
        objective: what is minimised on them, once the policy's warm-up is over.
        finish: what is done to the chosen model afterwards; None is nothing.
    """

    policy: Policy = field(default_factory=Uniform)
    objective: Objective = field(default_factory=CrossEntropy)
    finish: PostTraining | None = None


@dataclass(frozen=True)
class ValidatedMethod(Method):
    """A method whose policy accepted a training, so that `fit` does not ask it again.

    Attributes:
        planned: the training that it accepted.
    """

    planned: PlannedTraining | None = None


def validated(what: Method | Policy | Objective | None, planned: PlannedTraining) -> ValidatedMethod:
    """A method that can do its work in a training; ask before data are read or files are written.

    Args:
        what: a policy, an objective, or both.
        planned: the training.

    Raises:
        ConfigError: if the policy refuses.
    """
    if isinstance(what, ValidatedMethod) and what.planned == planned:
        return what
    method = as_method(what)
    method.policy.validate(planned)
    return ValidatedMethod(method.policy, method.objective, method.finish, planned)


def as_method(what: Method | Policy | Objective | None) -> Method:
    """A policy brings its own objective, by default the cross-entropy; an objective alone shuffles the whole set."""
    if what is None:
        return Method()
    if isinstance(what, Policy):
        return Method(what, what.objective() or CrossEntropy(), what.post_training())
    if isinstance(what, Objective):
        return Method(objective=what)
    expect_kind(
        "method",
        what,
        (Method, Policy, Objective),
        "a policy or an objective, such as Spare()",
        "holdfast.build_method({!r})",
    )
    return what
