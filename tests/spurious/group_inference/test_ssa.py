from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.data import Examples, Splits
from holdfast.errors import ConfigError, DataError, HoldfastWarning
from holdfast.spurious.group_inference import ssa as module
from holdfast.spurious.group_inference.base import InferGroups
from holdfast.spurious.group_inference.ssa import Ssa, attribute_predictor, confident_examples, descend, gather_from
from holdfast.spurious.objectives.group_dro import GroupDroLoss
from holdfast.training import Curator, Plan, Run, Training, Uniform, fit
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

SETTINGS = Training(epochs=2, batch_size=8, learning_rate=0.02, checkpoint_seconds=0)
QUICK = {"iterations": 60, "check_every": 20, "learning_rate": 0.02, "batch_size": 32}


def blind(examples: Examples) -> Examples:
    """The same examples without attributes and groups."""
    return Examples.of(examples.inputs, examples.labels, ids=examples.ids)


def curate(policy, train: Examples, validation: Examples | None, model: nn.Module | None = None) -> Plan:
    model = model or toy_model()
    curator = Curator(train, policy, seed=5, validation=validation)
    curator.start(model, torch.optim.SGD(model.parameters(), lr=0.01))
    return curator.plan


# ------------------------------------------------------------------------------------------ the confident examples


def totals(confidence, groups, labelled, threshold=0.95) -> list[int]:
    groups, labelled = torch.tensor(groups), torch.tensor(labelled)
    chosen = confident_examples(torch.tensor(confidence), groups, labelled, threshold)
    return (labelled + torch.bincount(groups[chosen], minlength=len(labelled))).tolist()


def test_every_group_is_filled_up_to_the_total_of_the_smallest():
    confidence = [0.99, 0.97, 0.94] + [0.9, 0.8, 0.7, 0.6] + [0.99] * 5
    groups = [0] * 3 + [1] * 4 + [2] * 5
    assert totals(confidence, groups, [3, 4, 3]) == [5, 5, 5]


def test_a_group_takes_all_it_has_where_that_is_too_little_and_none_where_it_has_more_already():
    confidence = [0.99, 0.97, 0.96] + [0.9] + [0.99] * 5
    assert totals(confidence, [0] * 3 + [1] + [2] * 5, [2, 3, 9]) == [5, 4, 9]


def test_while_the_predictor_is_sure_of_nothing_no_example_joins_in():
    assert totals([0.6] * 8, [0, 1, 2, 3] * 2, [5, 5, 7, 9]) == [5, 5, 7, 9]


def test_a_group_without_labelled_examples_does_not_set_the_total():
    assert totals([0.99, 0.99, 0.5, 0.5], [1, 1, 0, 0], [0, 2, 3]) == [2, 4, 3]


def test_among_the_examples_of_a_group_the_surest_are_taken():
    chosen = confident_examples(
        torch.tensor([0.5, 0.7, 0.6, 0.96, 0.99]), torch.tensor([1, 1, 1, 0, 0]), torch.tensor([1, 1]), 0.95
    )
    assert chosen.tolist() == [False, True, True, True, True]


def test_the_choice_equals_the_smallest_thresholds_that_keep_every_total_at_most_that_of_the_smallest_group():
    """Equations 5 to 7 of the paper by brute force over all thresholds."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        confidence = 0.5 + torch.rand(60, generator=generator) / 2
        groups = torch.randint(4, (60,), generator=generator)
        labelled = torch.randint(1, 12, (4,), generator=generator)
        smallest = int(labelled.argmin())
        total = labelled[smallest] + ((groups == smallest) & (confidence >= 0.9)).sum()
        expected = torch.zeros(60, dtype=torch.bool)
        for g in range(4):
            fitting = [
                taken
                for tau in [0.0, *confidence.tolist(), 2.0]
                if labelled[g] + (taken := (groups == g) & (confidence >= tau)).sum() <= total or tau == 2.0
            ]
            expected |= max(fitting, key=lambda taken: int(taken.sum()))
        assert torch.equal(confident_examples(confidence, groups, labelled, 0.9), expected)


# ----------------------------------------------------------------------------------------------- the predictor


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (toy_model(), "head"),
        (nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False))), "1.1"),
    ],
    ids=["named", "nested"],
)
def test_the_predictor_is_a_copy_with_a_new_head(model, head):
    before = fingerprint(model)
    predictor = attribute_predictor(model, 5)
    ours, theirs = model.state_dict(), predictor.state_dict()
    assert theirs[f"{head}.weight"].shape == (5, ours[f"{head}.weight"].shape[1])
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if not name.startswith(head))
    for parameter in predictor.parameters():
        parameter.data.zero_()
    assert fingerprint(model) == before


def test_the_predictor_of_a_model_that_is_all_head_is_a_new_head():
    assert attribute_predictor(nn.Linear(4, 2), 3).weight.shape == (3, 4)


def test_every_step_follows_the_gradient_of_its_own_batch():
    """A public implementation never clears gradients, so its second step follows the sum of both."""
    predictor = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(predictor.parameters(), lr=0.5)
    inputs, attributes = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    for _ in range(3):
        loss = F.cross_entropy(predictor(inputs), attributes)
        wanted = [p - 0.5 * g for p, g in zip(predictor.parameters(), _gradients(loss, predictor), strict=True)]
        descend(predictor, optimizer, inputs, attributes)
        assert all(torch.allclose(p, w) for p, w in zip(predictor.parameters(), wanted, strict=True))


def _gradients(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()))


def attributed(inputs, attributes) -> Examples:
    return Examples.of(inputs, [0] * len(attributes), attributes=attributes)


def test_a_batch_is_gathered_from_two_sets():
    pool = [
        attributed(torch.arange(4.0)[:, None], [0, 1, 0, 1]),
        attributed(10 + torch.arange(3.0)[:, None], [1, 1, 0]),
    ]
    inputs, attributes = gather_from(pool, torch.tensor([6, 1, 4]), torch.device("cpu"))
    assert (inputs.flatten().tolist(), attributes.tolist()) == ([1.0, 10.0, 12.0], [1, 1, 0])
    inputs, _ = gather_from(pool, torch.tensor([5, 5]), torch.device("cpu"))
    assert inputs.flatten().tolist() == [11.0, 11.0]


def test_a_batch_of_named_inputs_is_gathered_from_two_sets():
    pool = [attributed({"ids": torch.arange(2)[:, None], "mask": torch.ones(2, 1)}, [0, 1]) for _ in range(2)]
    inputs, _ = gather_from(pool, torch.tensor([3, 0]), torch.device("cpu"))
    assert {name: part.flatten().tolist() for name, part in inputs.items()} == {"ids": [0, 1], "mask": [1.0, 1.0]}


def trained_with_scores(monkeypatch, scores: list[float]) -> tuple[list[str], str, float]:
    """Fingerprints of the predictor whenever it is scored, at the end, and the score that is returned."""
    states, given = [], iter(scores)

    def score(predictor, held_out):
        states.append(fingerprint(predictor))
        return SimpleNamespace(worst_accuracy=next(given))

    monkeypatch.setattr(module, "judge", score)
    predictor, taught = toy_model(), toy_examples(40, 1)
    best = Ssa(**{**QUICK, "iterations": 50})._train(predictor, taught, taught, blind(toy_examples(60)), seed=0)
    return states, fingerprint(predictor), best.worst_accuracy


def test_the_first_best_checkpoint_on_the_held_out_half_is_kept(monkeypatch):
    states, final, best = trained_with_scores(monkeypatch, [0.6, 0.9, 0.9])
    assert len(set(states)) == 3
    assert (final, best) == (states[1], 0.9)


def test_a_perfect_checkpoint_ends_the_training_since_none_can_be_better(monkeypatch):
    states, final, best = trained_with_scores(monkeypatch, [0.6, 1.0])
    assert (final, best) == (states[1], 1.0)


def test_labelled_and_confident_examples_together_are_what_the_predictor_trains_on(monkeypatch):
    pools = {}
    gather = module.gather_from
    monkeypatch.setattr(
        module, "gather_from", lambda pool, *rest: pools.setdefault(id(pool), pool) and gather(pool, *rest)
    )
    taught, unlabelled = toy_examples(40, 1, 1000), blind(toy_examples(400, 3))
    Ssa(**QUICK, threshold=0.8)._train(toy_model(), taught, toy_examples(300, 2), unlabelled, seed=0)
    first, *later = pools.values()
    assert [len(part) for part in first] == [40]
    assert len(later) == 2
    for pool in later:
        assert pool[0] is taught
        assert set(pool[1].ids.tolist()) < set(unlabelled.ids.tolist())
        counts = [torch.bincount(2 * part.labels + part.attributes, minlength=4) for part in pool]
        smallest = int(counts[0].argmin())
        total = int((counts[0] + counts[1])[smallest])
        assert counts[1][smallest] > 0
        assert (counts[0] + counts[1]).tolist() == [max(total, int(count)) for count in counts[0]]


# ---------------------------------------------------------------------------------------------------- the method


def test_groups_are_class_and_predicted_attribute():
    train = toy_examples(300)
    plan = curate(Ssa(**QUICK), blind(train), toy_examples(200, 1))
    assert (plan.groups == train.groups).float().mean() > 0.9
    assert torch.equal(plan.groups // 2, train.labels)


def test_predicted_groups_are_drawn_equally_often():
    train = blind(toy_examples(300))
    plan = curate(Ssa(**QUICK), train, toy_examples(200, 1))
    assert plan.shares(plan.groups).tolist() == pytest.approx([0.25] * 4)


def test_attributes_of_the_training_set_are_not_looked_at():
    train, validation = toy_examples(120), toy_examples(80, 1)
    known, unknown = (curate(Ssa(**QUICK), examples, validation) for examples in (train, blind(train)))
    assert known.same_as(unknown)


class Watched(Ssa):
    """Notes what each predictor is trained on instead of training it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = []

    def _train(self, predictor, taught, held_out, unlabelled, seed):
        self.seen.append((taught, held_out, unlabelled, seed))
        return SimpleNamespace(worst_accuracy=0.9, group_mean=0.9)


def test_each_part_of_the_training_set_is_labelled_by_a_predictor_that_never_saw_it():
    train, policy = toy_examples(61), Watched(splits=3)
    curate(policy, train, toy_examples(40, 1))
    unseen = [set(train.ids.tolist()) - set(unlabelled.ids.tolist()) for _, _, unlabelled, _ in policy.seen]
    assert [len(part) for part in unseen] == [21, 20, 20]
    assert set.union(*unseen) == set(train.ids.tolist())
    assert len({seed for *_, seed in policy.seen}) == 3


def test_one_half_of_the_validation_set_teaches_and_the_other_chooses():
    policy, validation = Watched(), toy_examples(80, 1)
    curate(policy, toy_examples(), validation)
    taught, held_out = policy.seen[0][:2]
    assert not set(taught.ids.tolist()) & set(held_out.ids.tolist())
    assert len(taught) + len(held_out) == 80
    assert (taught.group_counts() - held_out.group_counts()).abs().max() <= 1


def test_only_what_earlier_policies_left_is_labelled_and_drawn():
    class WithoutLast(Uniform):
        name = "without-last"

        def update(self, context):
            return Plan(copies=torch.arange(len(context.examples)) < 40)

    policy, train = Watched(), toy_examples(60)
    plan = curate(WithoutLast() >> policy, train, toy_examples(40, 1))
    assert max(int(unlabelled.ids.max()) for _, _, unlabelled, _ in policy.seen) == 39
    assert float(plan.sample_weight[40:].sum()) == 0


def test_the_runs_model_and_the_global_generator_are_left_alone():
    model = toy_model()
    before, state, modes = fingerprint(model), torch.get_rng_state(), [part.training for part in model.modules()]
    curate(Ssa(**QUICK), toy_examples(), toy_examples(40, 1), model)
    assert fingerprint(model) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_that_a_predictor_draws_depends_on_what_the_global_generator_is_at():
    drawn = []

    class Drawing(Watched):
        def _train(self, predictor, *rest):
            drawn[-1].append((fingerprint(predictor), float(torch.rand(()))))
            return super()._train(predictor, *rest)

    for state in (1, 2):
        drawn.append([])
        with torch.random.fork_rng():
            torch.manual_seed(state)
            curate(Drawing(), toy_examples(), toy_examples(40, 1))
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3


def test_the_same_seed_gives_the_same_groups():
    plans = [curate(Ssa(**QUICK), toy_examples(), toy_examples(40, 1)) for _ in range(2)]
    assert plans[0].same_as(plans[1])


def test_as_a_source_for_another_method_it_gives_the_same_groups():
    train, validation = toy_examples(), toy_examples(40, 1)
    alone, source = (curate(policy, train, validation) for policy in (Ssa(**QUICK), InferGroups(Ssa(**QUICK))))
    assert torch.equal(alone.groups, source.groups)
    assert source.sample_weight is None


def test_the_model_is_trained_once_by_group_dro_on_the_predicted_groups():
    splits, prepared = toy_splits(), []

    class Noted(GroupDroLoss):
        def prepare(self, examples, *rest):
            prepared.append(examples.groups)
            super().prepare(examples, *rest)

    class WithNoted(Ssa):
        def objective(self):
            return Noted(self.eta_q, self.adjustment)

    events = []
    result = fit(toy_model(), splits, WithNoted(**QUICK), SETTINGS, listeners=[events.append])
    assert [record["stage"] for record in result.history] == [0, 0]
    plan = next(event for event in events if event.kind == "plan")
    assert (plan.epoch, plan.values["slots"]) == (0, ["groups", "sample_weight"])
    assert len(prepared) == 1
    assert torch.equal(prepared[0] // 2, splits.train.labels)
    assert Ssa(eta_q=0.3, adjustment=2.0).objective().eta_q == 0.3


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = fit(toy_model(), toy_splits(), Ssa(**QUICK), SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), Ssa(**QUICK), SETTINGS, run=broken, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), Ssa(**QUICK), SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history


def test_a_predictor_that_learned_nothing_is_warned_about():
    unlearnable = Examples.of(torch.zeros(40, 6), [0, 1] * 20, attributes=[0, 0, 1, 1] * 10)
    with pytest.warns(HoldfastWarning, match=r"right for \d+% of the average held-out group, no better than guessing"):
        curate(Ssa(iterations=1, learning_rate=1e-9), toy_examples(), unlearnable)


def test_what_is_missing_is_named():
    splits = toy_splits()
    unknown = Splits("unknown", splits.train, blind(splits.validation), splits.test)
    with pytest.raises(DataError, match="ssa learns the attribute from a validation set that has it"):
        fit(toy_model(), unknown, Ssa(), SETTINGS)
    curator = Curator(splits.train, Ssa(), validation=splits.validation)
    with pytest.raises(ConfigError, match="ssa trains a copy of the model and was given none"):
        curator.start()


@pytest.mark.parametrize(
    "options",
    [{"iterations": 0}, {"check_every": 0}, {"splits": 1}, {"threshold": 1.2}, {"learning_rate": 0.0}],
    ids=lambda options: next(iter(options)),
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} of ssa is"):
        Ssa(**options)


def test_there_is_no_first_stage_to_set():
    assert (Ssa().warmup_epochs, Ssa().infer_epoch) == (0, 0)
    assert not {"infer_epoch", "first_learning_rate", "first_weight_decay"} & {f.name for f in fields(Ssa)}
