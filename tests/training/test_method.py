"""Methods, and when their policies are asked whether they can do their work."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from holdfast.errors import ConfigError
from holdfast.training import CrossEntropy, Method, Plan, PlannedTraining, Policy, validated


@dataclass
class Asked(Policy):
    """Counts how often it is asked, and refuses short trainings."""

    name: ClassVar[str] = "asked"
    times: int = 0

    def validate(self, planned):
        self.times += 1
        if planned.epochs < 2:
            raise ConfigError("asked needs two epochs")

    def update(self, context):
        return Plan()


LONG, SHORT = PlannedTraining(5, 8, False), PlannedTraining(1, 8, False)


def test_a_policy_is_asked_once_for_a_training():
    policy = Asked()
    method = validated(policy, LONG)
    assert validated(method, LONG) is method and policy.times == 1


def test_it_is_asked_again_for_another_training():
    method = validated(Asked(), LONG)
    with pytest.raises(ConfigError, match="asked needs two epochs"):
        validated(method, SHORT)


def test_a_validated_method_is_what_the_policy_brings():
    objective = CrossEntropy()
    method = validated(Method(Asked(), objective), LONG)
    assert isinstance(method.policy, Asked) and method.objective is objective and method.finish is None
    assert validated(None, SHORT).policy.name == Method().policy.name
