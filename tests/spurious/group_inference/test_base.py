"""Groups that one policy infers and others use."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.methods import GROUP_SOURCES, build_method
from holdfast.spurious import GroupBalanced, GroupDRO, GroupInference, InferGroups, Jtt, Pde, Spare
from holdfast.training import Curator, Plan, Training, Uniform, fit
from holdfast.training.method import Method, as_method
from tests.training.toy import toy_examples, toy_model, toy_splits


@dataclass(kw_only=True)
class Parity(GroupInference):
    """Groups by the parity of the position, for the tests."""

    name: ClassVar[str] = "parity"

    def infer(self, context):
        return torch.arange(len(context.examples)) % 2

    def plan_from_groups(self, context, groups):
        return Plan(copies=groups + 1)


def plans_by_epoch(policy, epochs, n=12):
    examples, model = toy_examples(n), toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curator, plans = Curator(examples, policy, batch_size=4), []
    for _ in curator.epochs(epochs, model, optimizer):
        plans.append((curator.plan, optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]))
    return plans


def test_a_complete_method_trains_plainly_infers_and_answers():
    plans = plans_by_epoch(Parity(infer_epoch=2), 2)
    assert [plan.copies is None for plan, _, _ in plans] == [True, True, False, False]
    assert plans[2][0].copies.tolist() == [1, 2] * 6
    assert plans[2][0].groups.tolist() == [0, 1] * 6


def test_a_source_of_groups_leaves_the_answer_to_the_next_policy():
    plans = plans_by_epoch(InferGroups(Parity(infer_epoch=1)) >> GroupBalanced(), 1)
    assert plans[0][0].tensors() == {}
    assert plans[1][0].copies is None
    assert plans[1][0].sample_weight.tolist() == pytest.approx([1 / 12] * 12)


def test_pde_behind_a_source_counts_its_epochs_from_the_new_start():
    policy = InferGroups(Parity(infer_epoch=3)) >> Pde(first_expansion=2, every=1, added=1, at_least=0, rate_decay=0.5)
    plans = plans_by_epoch(policy, 4, n=13)
    sizes = [None if plan.copies is None else int(plan.copies.sum()) for plan, _, _ in plans]
    assert sizes == [None, None, None, 12, 12, 13, 13]
    assert [rate for _, rate, _ in plans] == pytest.approx([0.1] * 5 + [0.05] * 2)


def test_the_plain_training_may_have_settings_of_its_own_which_end_with_it():
    plans = plans_by_epoch(Parity(infer_epoch=2, first_learning_rate=0.3, first_weight_decay=0.01), 2)
    assert [rate for _, rate, _ in plans] == pytest.approx([0.3, 0.3, 0.1, 0.1])
    assert [decay for _, _, decay in plans] == [0.01, 0.01, 0, 0]


def test_inferred_groups_reach_the_objective_and_the_reports_keep_the_true_ones():
    seen = []

    @dataclass(frozen=True)
    class Watched(GroupDRO):
        def objective(self):
            loss = super().objective()
            prepare = loss.prepare

            def watch(examples, model, new_optimizer):
                seen.append(examples.groups.clone())
                prepare(examples, model, new_optimizer)

            loss.prepare = watch
            return loss

    splits = toy_splits()
    chain = InferGroups(Parity(infer_epoch=1)) >> Watched()
    result = fit(toy_model(), splits, chain, Training(epochs=2, batch_size=8))
    assert [groups.tolist() for groups in seen] == [[i % 2 for i in range(len(splits.train))]]
    assert len(result.test.by_group) == 4


def test_the_warm_up_minimises_the_cross_entropy_whatever_the_objective():
    settings = Training(epochs=1, batch_size=8, learning_rate=0.02)
    plain = fit(toy_model(), toy_splits(), Uniform(), settings).history[0]
    other = fit(toy_model(), toy_splits(), InferGroups(Parity(infer_epoch=1)) >> GroupDRO(), settings).history[0]
    assert plain["loss"] == other["loss"]


@pytest.mark.parametrize("source", [Spare(infer_epoch=1, k=2, tau=-1), Jtt(infer_epoch=1)])
@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_every_kind_of_groups_feeds_every_method_that_needs_them(source):
    for policy in (Pde(first_expansion=1, every=1, added=4), GroupDRO(), GroupBalanced()):
        splits = toy_splits()
        bare = replace(splits, train=replace(splits.train, attributes=None, groups=None))
        result = fit(toy_model(), bare, InferGroups(source) >> policy, Training(epochs=2, batch_size=8))
        assert len(result.history) == 3


def test_two_objectives_are_refused_and_one_is_taken_from_the_chain():
    assert isinstance(as_method(InferGroups(Jtt()) >> GroupDRO()), Method)
    with pytest.raises(ConfigError, match="cvar and group-dro each bring their own objective"):
        as_method(build_method("cvar+group-dro"))


def test_who_infers_no_groups_is_refused():
    assert {"spare", "jtt"} <= set(GROUP_SOURCES)
    with pytest.raises(ConfigError, match="no method called 'pde' infers groups"):
        build_method("group-dro", groups="pde")
    with pytest.raises(ConfigError, match="spare infers its own groups"):
        build_method("spare", groups="spare")
    with pytest.raises(ConfigError, match="Pde infers no groups"):
        InferGroups(Pde())
