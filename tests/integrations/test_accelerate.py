import pytest
import torch

from holdfast.errors import CheckpointError, ConfigError
from tests.integrations.conftest import (
    EPOCHS,
    GROWING,
    SHRINKING,
    EveryStep,
    Resize,
    RestartAfterOne,
    joined,
    make_curator,
    make_model,
    same_weights,
    seen_by_curator,
    trained_by_curator,
    weighted_loss,
)

accelerate = pytest.importorskip("accelerate")

from holdfast.integrations.accelerate import prepare  # noqa: E402


class Session:
    """The loop of the module's documentation."""

    def __init__(self, policy, *, accumulate=1, loader_options=None, **options):
        self.accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        self.curator = make_curator(policy, **options)
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.loader = prepare(self.accelerator, self.curator, **(loader_options or {}))
        self.seen = []

    def train(self, *, epochs=EPOCHS, save_at=None, folder=None):
        model = self.accelerator.unwrap_model(self.model)
        for _ in self.curator.epochs(epochs, model, self.optimizer):
            self.seen.append([])
            for x, y, positions, weight in self.loader:
                self.seen[-1].append(positions.tolist())
                with self.accelerator.accumulate(self.model):
                    self.accelerator.backward(weighted_loss(self.model, x, y, weight))
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                if self.accelerator.sync_gradients:
                    self.curator.end_step()
                if self.curator.clock.step == save_at:
                    self.accelerator.save_state(str(folder))
        return self


@pytest.mark.parametrize("sizes", [GROWING, SHRINKING])
@pytest.mark.parametrize(("epoch_size", "workers"), [(None, 0), (41, 0), (None, 2), (40, 2)])
def test_every_epoch_sees_what_the_curator_draws(sizes, epoch_size, workers):
    loader_options = {"num_workers": workers, "persistent_workers": workers > 0}
    session = Session(Resize(sizes), epoch_size=epoch_size, loader_options=loader_options).train()
    assert session.seen == seen_by_curator(Resize(sizes), epoch_size=epoch_size)


@pytest.mark.parametrize("epoch_size", [None, 40])
def test_training_is_the_curators_own_to_the_bit(epoch_size):
    session = Session(Resize(weigh=True), epoch_size=epoch_size).train()
    wanted = trained_by_curator(Resize(weigh=True), epoch_size=epoch_size)
    assert same_weights(session.model.state_dict(), wanted)


def test_the_weights_reach_the_loss():
    session = Session(Resize((8,), weigh=True)).train(epochs=1)
    ((positions,),) = session.seen
    x, y = session.curator.examples.gather(torch.tensor(positions))
    raw = 1.0 + torch.tensor(positions) % 3
    model = make_model()
    residual = model(x).softmax(1) - torch.nn.functional.one_hot(y, 2)
    gradient = (raw / raw.mean()).unsqueeze(1) * residual / len(positions)
    torch.testing.assert_close(session.model.weight, model.weight - 0.1 * gradient.T @ x)


@pytest.mark.parametrize("step", [1, 5, 7])
@pytest.mark.parametrize("epoch_size", [None, 40])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, step, epoch_size):
    whole = Session(Resize(weigh=True), epoch_size=epoch_size).train(save_at=step, folder=tmp_path)
    again = Session(Resize(weigh=True), epoch_size=epoch_size)
    again.accelerator.load_state(str(tmp_path))
    again.train()
    assert joined(again.seen) == joined(whole.seen)[step:]
    assert same_weights(again.model.state_dict(), whole.model.state_dict())
    assert not list(tmp_path.glob("custom_checkpoint*"))


def test_a_checkpoint_without_a_curator_is_named(tmp_path):
    session = Session(Resize()).train(epochs=1, save_at=1, folder=tmp_path)
    (tmp_path / "curator.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no curator.safetensors"):
        session.accelerator.load_state(str(tmp_path))


def test_accumulated_batches_make_one_step_of_the_curator():
    session = Session(Resize(weigh=True), accumulate=2, epoch_size=40).train()
    assert [len(batch) for batch in session.seen[0]] == [4] * 10
    assert session.curator.clock.step == 20
    wanted = trained_by_curator(Resize(weigh=True), epoch_size=40)
    torch.testing.assert_close(dict(session.model.state_dict()), dict(wanted))


def test_a_policy_that_restarts_resets_the_model():
    session = Session(RestartAfterOne()).train(epochs=2)
    assert same_weights(session.model.state_dict(), trained_by_curator(RestartAfterOne(), 2))


def test_mistakes_are_named_before_training():
    with pytest.raises(ConfigError, match="every-step can change the plan"):
        Session(EveryStep(), loader_options={"num_workers": 1})
    with pytest.raises(ConfigError, match="every-step can change the plan"):
        Session(EveryStep(), accumulate=2)
    with pytest.raises(ConfigError, match=r"accumulated batches = 6 examples and the curator counts 8"):
        Session(Resize(), accumulate=3)
