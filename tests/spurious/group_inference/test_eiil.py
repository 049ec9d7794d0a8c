from itertools import product

import pytest
import torch
import torch.nn.functional as F

from holdfast.data import Examples, Splits
from holdfast.errors import ConfigError, DataError
from holdfast.spurious import InferGroups, Pde
from holdfast.spurious.group_inference.eiil import Eiil, environments, scale_gradients
from holdfast.training import Curator, Plan, Run, Training, Uniform, fit
from tests.spurious.group_inference.test_jtt import Threshold, of_first_input
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

#: Groups are looked at here; what these loops train is beside the point.
pytestmark = pytest.mark.filterwarnings("ignore:.* has a loss of its own")

SETTINGS = Training(epochs=3, batch_size=8, learning_rate=0.02, checkpoint_seconds=0)


def random_case(n: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator)
    return logits, torch.randint(classes, (n,), generator=generator)


def by_autograd(logits, labels, steps: int, generator) -> torch.Tensor:
    """The definition: differentiate by the scale, keep the graph, differentiate the squares by u."""
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    losses = F.cross_entropy(logits.double() * scale, labels, reduction="none")
    u = torch.randn(len(labels), generator=generator).double().requires_grad_()
    adam = torch.optim.Adam([u], lr=0.01)
    for _ in range(steps):
        first, second = (
            torch.autograd.grad((losses * share).mean(), [scale], create_graph=True)[0]
            for share in (u.sigmoid(), 1 - u.sigmoid())
        )
        adam.zero_grad()
        (-torch.stack([first**2, second**2]).mean()).backward(retain_graph=True)
        adam.step()
    return u.sigmoid() > 0.5


def objective(first: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """What is maximised, for hard assignments of shape (m, n)."""
    one, two = (first * gradients).mean(1), (~first * gradients).mean(1)
    return (one**2 + two**2) / 2


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("classes", [2, 5])
def test_scale_gradients_are_those_of_autograd(classes):
    logits, labels = random_case(20, classes, seed=1)
    scale = torch.ones(20, dtype=torch.float64, requires_grad=True)
    F.cross_entropy(logits.double() * scale[:, None], labels, reduction="sum").backward()
    assert torch.allclose(scale_gradients(logits, labels), scale.grad, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [5, 60, 150])
def test_environments_are_those_of_the_definition_by_autograd(seed, steps):
    logits, labels = random_case(40, 3, seed)
    erring = environments(logits, labels, generator=stream(seed), steps=steps)
    expected = by_autograd(logits, labels, steps, stream(seed))
    assert torch.equal(erring, expected) or torch.equal(erring, ~expected)


def test_few_steps_leave_examples_where_they_were_drawn():
    """So that the test above compares more than the optimum."""
    logits, labels = random_case(40, 3, seed=0)
    early, late = (environments(logits, labels, generator=stream(0), steps=steps) for steps in (5, 20_000))
    assert 0 < int((early != late).sum()) < 40


def test_steps_that_could_change_nothing_are_left_out(monkeypatch):
    logits, labels = random_case(60, 4, seed=2)
    stopped = environments(logits, labels, generator=stream(0), steps=3000)
    monkeypatch.setattr("holdfast.spurious.group_inference.eiil._CHECK_EVERY", 10**9)
    assert torch.equal(stopped, environments(logits, labels, generator=stream(0), steps=3000))


@pytest.mark.parametrize("seed", range(4))
def test_no_hard_assignment_of_a_tiny_set_is_better(seed):
    logits, labels = random_case(10, 3, seed)
    gradients = scale_gradients(logits, labels)
    every = torch.tensor(list(product([False, True], repeat=10)))
    erring = environments(logits, labels, generator=stream(seed))
    best = objective(every, gradients).max()
    assert objective(erring[None], gradients)[0] == pytest.approx(float(best), rel=1e-9)
    assert torch.equal(erring, gradients > 0)


def test_with_two_classes_one_environment_is_the_error_set_whatever_was_drawn():
    logits, labels = random_case(50, 2, seed=3)
    for seed in range(5):
        erring = environments(logits, labels, generator=stream(seed))
        assert torch.equal(erring, logits.argmax(1) != labels)


def test_with_more_classes_the_environment_of_the_errors_has_nothing_that_is_right():
    logits, labels = random_case(200, 5, seed=4)
    labels[:100] = logits[:100].argmax(1)
    found, wrong = environments(logits, labels, generator=stream(0)), logits.argmax(1) != labels
    assert not bool((found & ~wrong).any())
    assert int(found.sum()) > int(wrong.sum()) / 2


def test_an_example_without_a_gradient_stays_where_it_was_drawn():
    logits, labels = random_case(50, 2, seed=3)
    logits[0], labels[0] = torch.tensor([200.0, 0.0]), 0
    drawn = {bool(environments(logits, labels, generator=stream(seed))[0]) for seed in range(10)}
    assert drawn == {False, True}


def test_logits_that_make_no_sense_are_refused():
    with pytest.raises(DataError, match=r"logits have shape \(3, 2\) and labels \(2,\)"):
        environments(torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), generator=stream(0))
    with pytest.raises(DataError, match="not finite"):
        environments(torch.full((1, 2), torch.nan), torch.zeros(1, dtype=torch.int64), generator=stream(0))


def plan_of(examples: Examples, policy) -> Plan:
    """The plan of the second stage, inferred from a model that predicts by the sign of the first input."""
    model = Threshold()
    curator = Curator(examples, policy, batch_size=4)
    for _ in curator.epochs(1, model, torch.optim.SGD(model.parameters(), lr=0.1)):
        pass
    return curator.plan


def test_groups_are_the_environments_of_each_class_and_are_drawn_equally_often():
    examples = of_first_input([-1, -2, -1, 1, 1, -3, -1, 2, 2, 1], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    plan = plan_of(examples, Eiil())
    assert plan.groups.tolist() == [0, 0, 0, 1, 2, 3, 3, 2, 2, 2]
    assert plan.shares(plan.groups).tolist() == pytest.approx([0.25] * 4)


def test_groups_can_be_the_two_environments():
    examples = of_first_input([-1, -2, -1, 1, 1, -3], [0, 0, 0, 0, 1, 1])
    plan = plan_of(examples, Eiil(by_class=False))
    assert plan.groups.tolist() == [0, 0, 0, 1, 0, 1]
    assert plan.shares(plan.groups).tolist() == pytest.approx([0.5, 0.5])


def test_only_what_earlier_policies_left_is_looked_at():
    class WithoutLast(Uniform):
        name = "without-last"

        def update(self, context):
            return Plan(copies=torch.arange(len(context.examples)) < 4)

    examples = of_first_input([-1, 1, 1, 1, -1], [0, 1, 0, 1, 1])
    plan = plan_of(examples, WithoutLast() >> Eiil())
    assert plan.groups.tolist()[:4] == [0, 2, 1, 2]
    assert plan.sample_weight[4] == 0


def test_a_first_stage_without_errors_is_an_error_with_a_remedy():
    perfect = of_first_input([-1, 1], [0, 1])
    with pytest.raises(ConfigError, match=r"eiil finds one environment only.*lower `infer_epoch`"):
        fit(Threshold(), Splits("perfect", perfect, perfect, perfect), Eiil(), SETTINGS)


class Watched(Eiil):
    """Keeps the loss that `fit` trains with."""

    def objective(self):
        self.loss = super().objective()
        return self.loss


def test_the_second_stage_is_group_dro_on_the_inferred_groups():
    watched = Watched(eta_q=0.1, adjustment=1.5)
    result = fit(toy_model(), toy_splits(), watched, SETTINGS)
    assert [record["stage"] for record in result.history] == [0, 1, 1, 1]
    assert (watched.loss.eta_q, watched.loss.adjustment) == (0.1, 1.5)
    assert len(watched.loss.q) == 4
    assert float(watched.loss.q.max()) > 0.3


def test_other_methods_can_use_the_environments():
    examples, model = toy_examples(60), toy_model()
    policy = InferGroups(Eiil()) >> Pde(first_expansion=1, every=1, added=4)
    curator = Curator(examples, policy, batch_size=8, seed=1)
    balanced = None
    for epoch in curator.epochs(3, model, torch.optim.SGD(model.parameters(), lr=0.05)):
        if epoch == 1:
            balanced = torch.bincount(curator.plan.groups[curator.plan.active])
    counts = torch.bincount(curator.plan.groups)
    assert int((counts > 0).sum()) >= 3
    assert set(balanced.tolist()) - {0} == {int(counts[counts > 0].min())}
    assert int(curator.plan.active.sum()) == int(balanced.sum()) + 8


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = fit(toy_model(), toy_splits(), Eiil(), SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), Eiil(), SETTINGS, run=broken, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), Eiil(), SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history


@pytest.mark.parametrize(
    ("option", "value"),
    [("infer_epoch", 0), ("assignment_steps", 0), ("assignment_rate", 0.0), ("eta_q", -1.0), ("adjustment", -1.0)],
)
def test_options_that_make_no_sense_are_refused(option, value):
    with pytest.raises(ConfigError, match=f"{option} of .* is {value}"):
        Eiil(**{option: value})
