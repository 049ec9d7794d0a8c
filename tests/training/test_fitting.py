import math

import pytest
import torch

from holdfast.data import Examples, Splits
from holdfast.errors import ConfigError, HoldfastError
from holdfast.spurious import GroupBalanced
from holdfast.training import CrossEntropy, Method, Objective, PostTraining, Run, Training, evaluate, fit
from holdfast.training.settings import build_optimizer, learning_rate_factor
from tests.training.policies import DropHighest, Growing, TwoStages
from tests.training.toy import toy_model, toy_splits

QUICK = Training(epochs=3, batch_size=8, learning_rate=0.05)


def test_the_best_epoch_is_the_first_with_the_highest_validation_score():
    result = fit(toy_model(), toy_splits(), None, Training(epochs=8, batch_size=8, learning_rate=0.05))
    scores = [record["score"] for record in result.history]
    assert result.best_epoch == scores.index(max(scores))
    assert result.validation.worst_accuracy == max(scores)
    again = evaluate(result.model, toy_splits().validation)
    assert again.worst_accuracy == max(scores)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    first, same, other = (
        fit(toy_model(), toy_splits(), None, Training(epochs=2, seed=seed)).history for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other


def test_the_callers_generator_and_threads_are_left_alone():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    fit(toy_model(), toy_splits(), None, Training(epochs=1, threads=1))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_full_epochs_count_examples_gone_through():
    result = fit(toy_model(), toy_splits(), Growing(first=12, step=6, after=1), QUICK)
    assert result.history[-1]["full_epochs"] == pytest.approx((12 + 18 + 24) / 60)


def test_models_of_the_first_stage_are_no_candidates():
    result = fit(toy_model(), toy_splits(), TwoStages(first=2), QUICK)
    assert len(result.history) == 5
    assert [record["stage"] for record in result.history] == [0, 0, 1, 1, 1]
    assert result.best_epoch >= 2


def test_a_restart_begins_the_schedule_again():
    settings = Training(epochs=4, batch_size=8, learning_rate=0.4, schedule="steps", milestones=(0.5,))
    rates = [r["learning_rate"] for r in fit(toy_model(), toy_splits(), TwoStages(first=1), settings).history]
    assert rates == pytest.approx([0.4, 0.4, 0.4, 0.04, 0.04])


def test_a_policys_cut_of_the_learning_rate_multiplies_the_schedule():
    settings = Training(epochs=4, batch_size=8, learning_rate=0.4, schedule="steps", milestones=(0.75,))
    rates = [r["learning_rate"] for r in fit(toy_model(), toy_splits(), Growing(first=12, after=2), settings).history]
    assert rates == pytest.approx([0.4, 0.4, 0.04, 0.004])


def test_a_linear_schedule_by_steps_spans_the_first_epochs_length_and_stays_at_zero():
    """PDE on CivilComments: the horizon is counted on the small first set, so the rate is 0 before the end."""
    settings = Training(epochs=4, batch_size=6, learning_rate=0.4, schedule="linear-steps")
    history = fit(toy_model(), toy_splits(), Growing(first=12, step=12, after=1), settings).history
    steps = [2, 4, 6, 8]
    ends = [sum(steps[: e + 1]) for e in range(4)]
    rates = [0.4 * 0.1 ** (e > 0) * max(0.0, 1 - (end - 1) / 8) for e, end in enumerate(ends)]
    assert [record["learning_rate"] for record in history] == pytest.approx(rates)
    assert rates[-1] == 0


def test_gradients_are_scaled_down_to_the_largest_norm():
    start = toy_model().state_dict()["body.0.weight"]
    settings = {"epochs": 1, "batch_size": 60, "learning_rate": 1.0, "momentum": 0.0}
    moved = []
    for limit in (1e-3, None):
        model = toy_model()
        fit(model, toy_splits(), None, Training(**settings, clip_norm=limit))
        moved.append(float((model.state_dict()["body.0.weight"] - start).norm()))
    assert 0 < moved[0] <= 1e-3 * 1.001 < moved[1]


def test_weight_decay_may_spare_vectors():
    matrices, vectors = build_optimizer(toy_model(), Training(weight_decay=0.1, decay_all=False)).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert {p.ndim for p in matrices["params"]} == {2}
    assert {p.ndim for p in vectors["params"]} == {1}


def test_a_finish_changes_the_chosen_model_before_it_is_reported_and_saved(tmp_path):
    class Flip(PostTraining):
        def __call__(self, trained):
            with torch.no_grad():
                trained.model.head.weight.mul_(-1)
                trained.model.head.bias.mul_(-1)
            return {"flipped": True}

    plain = fit(toy_model(), toy_splits(), None, QUICK)
    run = Run.create(tmp_path / "run", {})
    flipped = fit(toy_model(), toy_splits(), Method(finish=Flip()), QUICK, run=run)
    assert flipped.test.accuracy == pytest.approx(1 - plain.test.accuracy)
    assert run.results["finish"] == {"flipped": True}
    saved = run.weights()["head.weight"]
    assert torch.equal(saved, flipped.model.head.weight)


def test_objectives_add_up_and_share_a_forward_pass():
    calls = []

    class Penalty(Objective):
        def __call__(self, forward):
            calls.append(forward)
            return 0.1 * forward.logits.square().mean()

    model = toy_model()
    passes = []
    model.register_forward_hook(lambda *_: passes.append(model.training))
    fit(model, toy_splits(), Method(objective=CrossEntropy() + Penalty()), Training(epochs=1, batch_size=10))
    assert len(calls) == 6
    assert sum(passes) == 6


def test_an_objective_sees_the_groups_of_the_training_set_and_its_state_is_resumed(tmp_path):
    """The shape of GroupDRO: weights per group that grow with the group's loss."""

    class WorseGroupsCount(Objective):
        def prepare(self, examples, model, new_optimizer):
            self.groups = examples.require_groups("this objective")
            self.q = torch.ones(examples.n_groups) / examples.n_groups

        def __call__(self, forward):
            groups = self.groups[forward.batch.positions]
            member = torch.nn.functional.one_hot(groups, len(self.q)).float()
            by_group = (member.T @ forward.losses) / member.sum(0).clamp(min=1)
            self.q = self.q * (0.1 * by_group.detach()).exp()
            self.q /= self.q.sum()
            return (self.q * by_group).sum()

        def state_dict(self):
            return {"q": self.q}

        def load_state_dict(self, state):
            self.q = state["q"]

    straight = WorseGroupsCount()
    whole = fit(toy_model(), toy_splits(), straight, Training(epochs=4, batch_size=8, checkpoint_seconds=0))
    run = Run.create(tmp_path / "run", {})

    def stop(event):
        if event.kind == "plan":
            return
        if event.step >= 13:
            raise KeyboardInterrupt

    settings = Training(epochs=4, batch_size=8, checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        fit(toy_model(), toy_splits(), WorseGroupsCount(), settings, run=run, listeners=[stop])
    resumed = WorseGroupsCount()
    again = fit(toy_model(), toy_splits(), resumed, settings, run=run)
    assert torch.equal(straight.q, resumed.q)
    assert whole.history == again.history


def test_an_exploding_loss_is_reported_before_the_checkpoint_is_overwritten(tmp_path):
    run = Run.create(tmp_path / "run", {})

    class Explodes(Objective):
        steps = 0

        def __call__(self, forward):
            self.steps += 1
            return forward.losses.mean() * (math.nan if self.steps > 8 else 1)

    with pytest.raises(HoldfastError, match=r"loss became nan in epoch 1 before step \d+; lower the learning rate"):
        fit(toy_model(), toy_splits(), Explodes(), QUICK, run=run)
    weights = run.load_checkpoint()["model"]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def test_a_run_directory_tells_the_whole_story(tmp_path):
    run = Run.create(tmp_path / "run", {"data": "toy", "seed": 0})
    assert run.status == "interrupted"
    result = fit(toy_model(), toy_splits(), DropHighest(count=2), QUICK, run=run)
    assert run.status == "finished"
    assert run.config == {"data": "toy", "seed": 0}
    kinds = [record["event"] for record in run.metrics()]
    assert kinds == ["start", "plan", "epoch", "plan", "epoch", "plan", "epoch", "end"]
    assert [r["active"] for r in run.metrics() if r["event"] == "plan"] == [60, 58, 56]
    predictions = run.predictions()
    assert predictions["id"].tolist() == list(range(2000, 2040))
    assert (predictions["label"] == predictions["predicted"]).mean() == pytest.approx(result.test.accuracy)
    best = run.weights()
    assert all(torch.equal(best[name], tensor) for name, tensor in result.model.state_dict().items())
    assert run.results["test"] == result.test.to_json()
    plans = sorted(path.name for path in (run.path / "plans").iterdir())
    assert plans == ["step-00000008.parquet", "step-00000016.parquet"]


def test_a_second_run_in_the_same_place_is_refused(tmp_path):
    Run.create(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="continue it with --resume"):
        Run.create(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="there is no run at"):
        Run.open(tmp_path / "elsewhere")


def test_two_processes_cannot_write_one_run(tmp_path):
    run = Run.create(tmp_path / "run", {})
    run.lock()
    assert Run.open(tmp_path / "run").status == "running"
    with pytest.raises(ConfigError, match="another process is writing"):
        fit(toy_model(), toy_splits(), None, QUICK, run=Run.open(tmp_path / "run"))
    run.unlock()
    assert Run.open(tmp_path / "run").status == "interrupted"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"can't be made .*choose another place with --out"):
        Run.create(tmp_path / "file" / "run", {})


def test_overlapping_groups_are_evaluated_and_trained_without_groups():
    splits = toy_splits()

    def overlapping(examples: Examples) -> Examples:
        member = torch.stack([examples.attributes == 1, examples.labels == 1, torch.ones(len(examples)) > 0], 1)
        x, y = examples.gather(torch.arange(len(examples)))
        return Examples.of(x, y, memberships=member, group_names=("attribute", "label", "all"))

    plain = Splits("o", *(overlapping(part) for part in (splits.train, splits.validation, splits.test)))
    result = fit(toy_model(), plain, None, QUICK)
    assert [score.name for score in result.test.by_group] == ["attribute", "label", "all"]
    assert result.test.by_group[2].accuracy == pytest.approx(result.test.accuracy)
    with pytest.raises(HoldfastError, match="needs a group per training example"):
        fit(toy_model(), plain, GroupBalanced(), QUICK)


@pytest.mark.parametrize(
    ("settings", "points", "expected"),
    [
        (Training(schedule="steps", milestones=(0.6, 0.85)), (0.0, 0.59, 0.6, 0.9), (1, 1, 0.1, 0.01)),
        (Training(schedule="cosine"), (0.0, 0.5), (1, 0.5)),
        (Training(schedule="linear"), (0.0, 0.25), (1, 0.75)),
        (Training(epochs=10, rate_warmup=0.2), (0.0, 0.1, 0.2, 0.9), (1 / 3, 2 / 3, 1, 1)),
    ],
)
def test_schedules_follow_their_formula(settings, points, expected):
    assert [learning_rate_factor(settings, p) for p in points] == pytest.approx(expected)


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0},
        {"momentum": 1},
        {"rate_warmup": 1},
        {"milestones": (1.5,)},
    ],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        Training(**options)
