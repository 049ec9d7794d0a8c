import pytest
import torch

from holdfast.data import Examples, Splits
from holdfast.errors import ConfigError
from holdfast.spurious.group_inference.jtt import Jtt, first_plausible, misclassified
from holdfast.training import Curator, Plan, Run, Training, Uniform, fit
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

SETTINGS = Training(epochs=3, batch_size=8, learning_rate=0.02, checkpoint_seconds=0)


class Threshold(torch.nn.Module):
    """Predicts class 1 where the first input is positive; has a parameter so that it can be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return torch.stack([-x[:, 0], x[:, 0]], 1) * self.scale


def of_first_input(values: list[float], labels: list[int]) -> Examples:
    return Examples.of(torch.tensor(values)[:, None], labels)


def epochs_of(examples: Examples, policy, epochs: int) -> list[list[int]]:
    """What each epoch visits, sorted."""
    model = Threshold()
    curator = Curator(examples, policy, batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [sorted(curator.epoch_draws().tolist()) for _ in curator.epochs(epochs, model, optimizer)]


def test_what_the_first_stage_got_wrong_is_visited_exactly_lambda_up_times():
    examples = of_first_input([-1, 1, -1, 1], [0, 1, 1, 0])
    first, second, third, *more = epochs_of(examples, Jtt(infer_epoch=2, lambda_up=5), 2)
    assert first == second == [0, 1, 2, 3]
    assert third == more[0] == [0, 1] + [2] * 5 + [3] * 5
    assert len(more) == 1


def test_the_error_set_is_taken_after_the_first_stage_in_evaluation_mode():
    examples, model = toy_examples(60), toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    curator = Curator(examples, Jtt(infer_epoch=1, lambda_up=7), batch_size=10)
    for epoch in curator.epochs(1, model, optimizer):
        model.train()
        for x, y, _, _ in curator:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if epoch == 0:
            model.eval()
            wrong = model(examples.gather(torch.arange(60))[0]).argmax(1) != examples.labels
    assert 0 < int(wrong.sum()) < 60
    assert curator.plan.copies.tolist() == torch.where(wrong, 7, 1).tolist()


def test_the_second_stage_starts_from_the_first_weights():
    model = toy_model()
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen = []

    class Watched(Jtt):
        def update(self, context):
            seen.append(fingerprint(context.model))
            return super().update(context)

    def listener(event):
        if event.kind == "plan" and event.epoch == 2:
            seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})

    result = fit(model, toy_splits(), Watched(infer_epoch=2, lambda_up=3), SETTINGS, listeners=[listener])
    assert [record["stage"] for record in result.history] == [0, 0, 1, 1, 1]
    assert seen[0] != fingerprint(toy_model())
    assert all(torch.equal(seen[1][name], tensor) for name, tensor in initial.items())
    assert result.best_epoch >= 2


def test_only_what_earlier_policies_left_is_looked_at():
    class WithoutLast(Uniform):
        name = "without-last"

        def update(self, context):
            return Plan(copies=torch.arange(len(context.examples)) < 3)

    examples = of_first_input([-1, 1, 1, 1], [0, 1, 0, 0])
    *_, last = epochs_of(examples, WithoutLast() >> Jtt(lambda_up=2), 1)
    assert last == [0, 1, 2, 2]


def test_a_first_stage_without_errors_is_an_error_with_a_remedy():
    labels = torch.tensor([0, 1])
    with pytest.raises(ConfigError, match=r"misclassifies no training example.*lower `infer_epoch`"):
        misclassified(labels, labels)
    perfect = of_first_input([-1, 1], [0, 1])
    with pytest.raises(ConfigError, match="misclassifies no training example"):
        fit(Threshold(), Splits("perfect", perfect, perfect, perfect), Jtt(), SETTINGS)


def test_a_first_stage_that_is_always_wrong_is_an_error_with_a_remedy():
    labels = torch.tensor([0, 1])
    with pytest.raises(ConfigError, match=r"misclassifies every training example.*raise `infer_epoch`"):
        misclassified(1 - labels, labels)


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = fit(toy_model(), toy_splits(), Jtt(infer_epoch=1, lambda_up=4), SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(
                toy_model(),
                toy_splits(),
                Jtt(infer_epoch=1, lambda_up=4),
                SETTINGS,
                run=broken,
                listeners=[stop_after(steps)],
            )
    result = fit(toy_model(), toy_splits(), Jtt(infer_epoch=1, lambda_up=4), SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history


@pytest.mark.parametrize("options", [{"infer_epoch": 0}, {"lambda_up": 1}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} of jtt is"):
        Jtt(**options)


def test_auto_takes_the_first_error_set_of_a_model_that_has_learned():
    labels = torch.arange(200) % 2

    def wrong(count: int) -> torch.Tensor:
        return torch.arange(200) < count

    assert first_plausible({1: wrong(70), 2: wrong(30), 3: wrong(12)}, labels) == 2
    assert first_plausible({1: wrong(90), 2: wrong(60), 3: wrong(80)}, labels) == 2, "the most skilled of unskilled"
    assert first_plausible({1: wrong(3), 2: wrong(0)}, labels) == 1, "an empty set can't be repeated"


def test_auto_trains_the_first_stage_to_its_end_and_repeats_the_chosen_set():
    result = fit(toy_model(), toy_splits(), Jtt(latest=3, lambda_up=3), SETTINGS)
    assert [record["stage"] for record in result.history] == [0, 0, 0, 1, 1, 1]
    assert {"skill of the first stage", "length of an epoch"} <= {found.check for found in result.health.findings}
