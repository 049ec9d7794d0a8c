"""Lower precision in training: the same method, its state in the checkpoint, and a warning where decisions change."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from holdfast.errors import ConfigError, HoldfastError, HoldfastWarning
from holdfast.training import Context, Curator, Plan, Policy, Run, Training, fit
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.precision_check import difference
from tests.training.policies import DropHighest, TwoStages
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

SETTINGS = Training(epochs=3, batch_size=7, learning_rate=0.05, seed=3, schedule="cosine", checkpoint_seconds=0)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_autocast_trains_nearly_as_float32_and_not_to_the_bit(precision):
    def losses(chosen):
        settings = dataclasses.replace(SETTINGS, precision=chosen, clip_norm=1.0)
        return torch.tensor([record["loss"] for record in fit(toy_model(), toy_splits(), None, settings).history])

    full, lower = losses("fp32"), losses(precision)
    assert not torch.equal(full, lower)
    torch.testing.assert_close(lower, full, rtol=0.05, atol=0)


OPTIONS = {
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16", "clip_norm": 0.5},
    "accumulated": {"accumulate": 3, "batch_size": 4},
    "accumulated in fp16": {"accumulate": 3, "batch_size": 4, "precision": "fp16"},
    "workers": {"workers": 2},
}


@pytest.mark.parametrize("policy", [DropHighest, TwoStages])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_interrupted_run_ends_with_the_same_weights(name, policy, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    settings = dataclasses.replace(SETTINGS, **OPTIONS[name])

    def train(run, listeners=()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HoldfastWarning)  # sixty examples: some decisions do change
            return fit(toy_model(), toy_splits(), policy(), settings, run=run, listeners=listeners)

    expected = train(Run.create(tmp_path / "straight", {}))
    broken = Run.create(tmp_path / "broken", {})
    for steps in (4, 11):
        with pytest.raises(StopHere):
            train(broken, [stop_after(steps)])
    assert fingerprint(train(broken).model) == fingerprint(expected.model)


def test_a_channels_last_run_is_resumed_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    splits = toy_splits()

    def images(part):
        values = part.inputs.gather(torch.arange(len(part))).repeat(1, 8).view(-1, 3, 4, 4)
        return dataclasses.replace(part, inputs=dataclasses.replace(part.inputs, values=values))

    splits = dataclasses.replace(
        splits, **{name: images(getattr(splits, name)) for name in ("train", "validation", "test")}
    )

    def train(run, listeners=()):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
        settings = dataclasses.replace(SETTINGS, channels_last=True, precision="bf16")
        result = fit(model, splits, None, settings, run=run, listeners=listeners)
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
        return result

    expected = train(Run.create(tmp_path / "straight", {}))
    broken = Run.create(tmp_path / "broken", {})
    with pytest.raises(StopHere):
        train(broken, [stop_after(11)])
    went_on = train(broken)
    assert fingerprint(went_on.model) == fingerprint(expected.model)
    # The kept epoch may lie before the interruption: so every epoch's loss and scores are compared, too.
    told = [[{**entry, "seconds": 0} for entry in result.history] for result in (went_on, expected)]
    assert told[0] == told[1] and len(told[0]) == SETTINGS.epochs


def test_the_scale_of_gradients_is_in_the_checkpoint(tmp_path):
    run = Run.create(tmp_path / "run", {})
    fit(toy_model(), toy_splits(), None, dataclasses.replace(SETTINGS, precision="fp16"), run=run)
    assert run.load_checkpoint()["scaler"]["scale"] > 0


def test_outputs_of_a_lower_precision_are_kept_in_float32_and_differ():
    model, examples = toy_model(), toy_examples()
    full, lower = (ModelOutputs(model, examples, precision=chosen).logits() for chosen in ("fp32", "bf16"))
    assert full.dtype == lower.dtype == torch.float32
    assert not torch.equal(full, lower)
    torch.testing.assert_close(lower, full, atol=0.02, rtol=0.02)
    assert torch.equal(lower, lower.bfloat16().float()), "they were computed in bfloat16"


@dataclass
class ByLastBits(Policy):
    """Decides by what bfloat16 doesn't keep."""

    name: ClassVar[str] = "last-bits"

    def update(self, context: Context) -> Plan:
        logits = context.outputs.logits()
        return Plan(copies=(logits != logits.bfloat16().float()).any(1) | (torch.arange(len(logits)) < 3))


@dataclass
class ByLogits(Policy):
    """Decides by what both precisions agree on."""

    name: ClassVar[str] = "by-logits"

    def update(self, context: Context) -> Plan:
        losses = context.outputs.losses()
        return Plan(loss_weight=1 + losses)


def first_plan(policy, precision):
    model = toy_model()
    curator = Curator(toy_examples(), policy, precision=precision)
    curator.start(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    return curator


def test_decisions_that_differ_by_more_than_a_step_does_are_warned_of():
    with pytest.warns(HoldfastWarning, match=r"in bf16 last-bits decides otherwise than in float32: 9\d\.\d% of the"):
        curator = first_plan(ByLastBits(), "bf16")
    assert curator.precision_check.found.noise < 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_plan(ByLastBits(), "fp32").precision_check.found is None
        quiet = first_plan(ByLogits(), "bf16").precision_check.found
    assert 0 < quiet.differs < 0.01


def test_the_comparison_leaves_no_trace():
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    before, state = fingerprint(model), torch.get_rng_state()
    policy = DropHighest(start=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Curator(toy_examples(), policy, precision="bf16").start(model, optimizer)
    assert fingerprint(model) == before
    assert not optimizer.state and all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert int((~policy._kept).sum()) == policy.count


def test_the_event_of_a_plan_has_the_numbers():
    events = []
    with pytest.warns(HoldfastWarning, match="last-bits decides otherwise"):
        fit(
            toy_model(),
            toy_splits(),
            ByLastBits(),
            dataclasses.replace(SETTINGS, precision="bf16"),
            listeners=[events.append],
        )
    told = next(event.values["precision"] for event in events if event.kind == "plan")
    assert told["precision"] == "bf16" and told["differs"] > 0.9


def test_the_difference_of_plans_is_the_share_of_mass_that_moves():
    kept = Plan(copies=torch.tensor([1, 1, 0, 0]))
    assert difference(kept, kept, 4) == 0
    assert difference(kept, Plan(copies=torch.tensor([0, 0, 1, 1])), 4) == 1
    weighed = Plan(loss_weight=torch.tensor([3.0, 1.0, 0.0, 0.0]))
    assert difference(kept, weighed, 4) == pytest.approx(0.25)
    batches = Plan(batches=torch.tensor([[0, 1]]), batch_weight=torch.tensor([[1.5, 0.5]]))
    assert difference(weighed, batches, 4) == pytest.approx(0)
    assert difference(kept, None, 4) == 1
    one, other = (Plan(groups=torch.tensor(groups)) for groups in ([0, 1, 0, 1], [0, 1, 1, 1]))
    assert difference(one, other, 4) == 0.25


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_loss_that_is_not_finite_is_told_within_a_step_and_no_checkpoint_is_overwritten(
    precision, tmp_path, monkeypatch
):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    splits = toy_splits()
    splits.train.inputs.values[splits.train.labels == 1] *= 1e20
    run, settings = (
        Run.create(tmp_path / "run", {}),
        dataclasses.replace(SETTINGS, precision=precision, learning_rate=1e20),
    )
    advice = "--precision bf16" if precision == "fp16" else "--clip-norm"
    with pytest.raises(HoldfastError, match=rf"(loss|weights) became .* in epoch 0 before step [12345];.*{advice}"):
        fit(nn.Linear(6, 2), splits, None, settings, run=run)
    if run.has_checkpoint():
        assert all(values.isfinite().all() for values in run.load_checkpoint()["model"].values())


def test_what_cannot_be_is_refused_before_training():
    with pytest.raises(ConfigError, match="precision is 'bf61'; did you mean 'bf16'"):
        Training(precision="bf61")
    with pytest.raises(ConfigError, match="accumulate is 0"):
        Training(accumulate=0)
    with pytest.raises(ConfigError, match="workers is -1"):
        Training(workers=-1)
    with pytest.raises(ConfigError, match="pin_memory is for copies to a GPU"):
        fit(toy_model(), toy_splits(), None, Training(pin_memory=True))


def test_a_compiled_training_is_the_plain_one_and_a_model_that_cannot_be_compiled_is_a_sentence(monkeypatch):
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: compile_(model, backend="aot_eager"))
    plain, compiled = (
        fit(toy_model(), toy_splits(), None, dataclasses.replace(SETTINGS, compile=chosen)) for chosen in (False, True)
    )
    for mine, theirs in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not any(name.startswith("_orig_mod") for name in compiled.model.state_dict())

    def broken(graph, inputs):
        raise RuntimeError("no C++ compiler")

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", lambda model: compile_(model, backend=broken))
    with pytest.raises(ConfigError, match=r"can't be compiled here \(.*no C\+\+ compiler.*leave --compile out"):
        fit(toy_model(), toy_splits(), None, dataclasses.replace(SETTINGS, compile=True))
    torch._dynamo.reset()
