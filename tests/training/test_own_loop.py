"""What people do in loops of their own: accumulate gradients, schedule the rate, compile, and load half-precision."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.optim import lr_scheduler

from holdfast.coresets import Crest
from holdfast.data import Examples
from holdfast.errors import ConfigError, HoldfastWarning
from holdfast.poisoning import Epic
from holdfast.spurious import Jtt, Pde, Spare
from holdfast.training import Curator, Uniform
from tests.training.policies import LossWeights
from tests.training.test_speed_options import PlainNet, new_model
from tests.training.toy import toy_examples, toy_model


def sgd(model, rate=0.05):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def weights_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def accumulated(policy, accumulate, *, stop_after=None, state=None, epochs=2):
    """A loop that accumulates; it can be stopped after some optimizer steps, and continued."""
    model = new_model(PlainNet).double()
    optimizer = sgd(model)
    examples = toy_examples(61)
    examples = Examples.of(examples.inputs.gather(torch.arange(61)).double(), examples.labels, groups=examples.labels)
    curator = Curator(examples, policy, batch_size=8, accumulate=accumulate, seed=2)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        curator.load_state_dict(state["curator"])
    seen = []
    for _ in curator.epochs(epochs, model, optimizer):
        for x, y, positions, weight in curator:
            losses = F.cross_entropy(model(x), y, reduction="none")
            ((weight * losses).mean() / curator.accumulate).backward()
            seen += positions.tolist()
            if curator.ends_step:
                optimizer.step()
                optimizer.zero_grad()
                curator.end_step(model, optimizer)
                if curator.clock.step == stop_after:
                    parts = {"model": model, "optimizer": optimizer, "curator": curator}
                    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}, seen
    return model, seen


@pytest.mark.parametrize("policy", [Uniform, LossWeights, lambda: Crest(subset=20)])
def test_accumulated_gradients_are_those_of_the_whole_step(policy):
    (whole, all_seen), (parts, seen) = accumulated(policy(), 1), accumulated(policy(), 4)
    assert seen == all_seen
    torch.testing.assert_close(
        weights_of(parts), weights_of(whole), rtol=0, atol=1e-7
    )  # weights of examples are float32


@pytest.mark.parametrize("policy", [Uniform, lambda: Crest(subset=20)])
def test_a_checkpoint_in_mid_epoch_repeats_nothing_when_gradients_are_accumulated(policy):
    expected, all_seen = accumulated(policy(), 4)
    state, before = accumulated(policy(), 4, stop_after=3)
    model, after = accumulated(policy(), 4, state=state)
    assert before + after == all_seen
    assert torch.equal(weights_of(model), weights_of(expected))


def test_a_curator_that_was_not_told_of_accumulation_says_how_to_tell_it():
    def loop(policy):
        model = toy_model()
        optimizer, curator = sgd(model), Curator(toy_examples(64), policy, batch_size=4)
        for _ in curator.epochs(1, model, optimizer):
            for number, batch in enumerate(curator):
                F.cross_entropy(model(batch.inputs), batch.labels).backward()
                if number % 4 == 3:
                    optimizer.step()
                    curator.end_step(model, optimizer)

    with pytest.raises(ConfigError, match=r"crest acts between steps; .*Curator\(batch_size=16, accumulate=4\)"):
        loop(Crest(subset=20))
    with pytest.warns(HoldfastWarning, match=r"16 steps of this epoch and 4 were reported; .*accumulate=4"):
        loop(Uniform())


def test_impossible_accumulation_is_refused():
    with pytest.raises(ConfigError, match="accumulate is 9 and batch_size 8"):
        Curator(toy_examples(), batch_size=8, accumulate=9)


SCHEDULERS = {
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=3),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / 3),
    "steps": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [1, 2]),
    "sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.ConstantLR(optimizer, 0.1, 1), lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)],
        [1],
    ),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=4),
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
}


def rates(policy, make, epochs=3):
    """The learning rate of every epoch, with a scheduler that is stepped after it."""
    model = toy_model()
    optimizer = sgd(model)
    scheduler, used = make(optimizer), []
    curator = Curator(toy_examples(), policy, batch_size=16)
    for _ in curator.epochs(epochs, model, optimizer, scheduler=scheduler):
        for x, y, _, weight in curator:
            optimizer.zero_grad()
            (weight * F.cross_entropy(model(x), y, reduction="none")).mean().backward()
            optimizer.step()
        used.append(optimizer.param_groups[0]["lr"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about the order of calls after a restart
            scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
    return used


@pytest.mark.parametrize("kind", SCHEDULERS)
@pytest.mark.parametrize("policy", [lambda: Jtt(infer_epoch=2, lambda_up=3), lambda: Spare(infer_epoch=2, k=1)])
def test_a_scheduler_begins_again_where_a_policy_does(policy, kind):
    plain = rates(Uniform(), SCHEDULERS[kind])
    restarted = rates(policy(), SCHEDULERS[kind])
    assert restarted[2:] == plain, "the second stage has the rates of a whole training"
    assert restarted[:2] == plain[:2]


@pytest.mark.parametrize("kind", sorted(set(SCHEDULERS) - {"plateau"}))
def test_a_scheduler_goes_on_from_the_rate_that_a_policy_asks_for(kind):
    """PDE's expansion has a lower rate; a scheduler that computes rates anew must not bring the old one back."""
    plain = rates(Uniform(), SCHEDULERS[kind])
    policy = Pde(first_expansion=1, every=1, added=4)
    scaled = rates(policy, SCHEDULERS[kind])
    factor = scaled[1] / plain[1]
    assert factor < 0.5
    assert scaled == pytest.approx([plain[0], factor * plain[1], factor * plain[2]])


@pytest.mark.parametrize("kind", ["wrapped", "in place"])
@pytest.mark.parametrize("proxy", ["logit", "full", "feature", "last_layer"])
def test_crest_chooses_the_same_for_a_compiled_model(kind, proxy):
    """Its Hessian and the gradients of single examples go through no compiled graph."""

    def plans(compiles):
        model = toy_model().eval()
        runs = torch.compile(model, backend="aot_eager") if compiles and kind == "wrapped" else model
        if compiles and kind == "in place":
            model.compile(backend="aot_eager")
        optimizer, curator = sgd(model), Curator(toy_examples(), Crest(subset=20, proxy=proxy), batch_size=8)
        for batch in curator.steps(4, runs, optimizer):
            optimizer.zero_grad()
            F.cross_entropy(runs(batch.inputs), batch.labels).backward()
            optimizer.step()
            yield curator.plan
        torch._dynamo.reset()

    assert all(one.same_as(other) for one, other in zip(plans(False), plans(True), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "policy",
    [
        lambda: Crest(subset=20, proxy="last_layer"),
        lambda: Crest(subset=20, proxy="full"),
        lambda: Epic(start=0, proxy="last-input", every=1),
        lambda: Jtt(infer_epoch=1, lambda_up=2),
        lambda: Spare(infer_epoch=1, k=1),
    ],
)
def test_policies_look_at_models_whose_weights_are_half_precision(policy, dtype):
    model = new_model(PlainNet).to(dtype)
    optimizer, curator = sgd(model, 0.01), Curator(toy_examples(), policy(), batch_size=16)
    for _ in curator.epochs(2, model, optimizer):
        for batch in curator:
            optimizer.zero_grad()
            F.cross_entropy(model(batch.inputs.to(dtype)).float(), batch.labels).backward()
            optimizer.step()
            curator.end_step(model, optimizer)
    assert all(values.dtype != dtype for values in curator.plan.tensors().values())


def test_named_inputs_are_handed_out_in_parts_too():
    """Texts come as token ids and masks."""
    inputs = {"ids": torch.arange(40).view(20, 2), "mask": torch.ones(20, 2)}
    curator = Curator(Examples.of(inputs, [0, 1] * 10), batch_size=8, accumulate=3)
    curator.start()
    batches = list(curator)
    assert [len(batch.labels) for batch in batches] == [3, 3, 2, 3, 3, 2, 4]
    for batch in batches:
        assert torch.equal(batch.inputs["ids"][:, 0], 2 * batch.positions)
