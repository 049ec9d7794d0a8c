import importlib
import sys

import pytest
import torch
from torch.utils.data import DataLoader

from holdfast.errors import CheckpointError, ConfigError, HoldfastWarning, MissingDependencyError
from holdfast.integrations.dataloader import CuratedSampler, curated_loader
from tests.integrations.conftest import (
    EPOCHS,
    GROWING,
    SHRINKING,
    EveryStep,
    Resize,
    RestartAfterOne,
    TenthOfTheRate,
    joined,
    make_curator,
    make_model,
    same_weights,
    seen_by_curator,
    trained_by_curator,
    weighted_loss,
)

L = pytest.importorskip("lightning.pytorch")

from holdfast.integrations.lightning import CuratorCallback  # noqa: E402


class Module(L.LightningModule):
    """A linear model that writes down what it is shown and at which rate."""

    def __init__(self, schedule=None, rate=0.1):
        super().__init__()
        self.net = make_model()
        self.schedule = schedule
        self.rate = rate
        self.seen = [[]]
        self.rates = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        self.seen[-1].append(batch.positions.tolist())
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return weighted_loss(self.net, batch.inputs, batch.labels, batch.weights)

    def on_train_epoch_end(self):
        self.seen.append([])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.rate)
        if self.schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": self.schedule(optimizer)}

    @property
    def epochs_seen(self):
        return self.seen[:-1]


def trainer(tmp_path, *callbacks, **options):
    options = {
        "max_epochs": EPOCHS,
        "enable_checkpointing": False,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": tmp_path,
        **options,
    }
    return L.Trainer(callbacks=list(callbacks), **options)


def fit(tmp_path, curator, module=None, *, resume=None, callbacks=(), loader=None, **options):
    module = module or Module()
    made = trainer(tmp_path, CuratorCallback(curator), *callbacks, **options)
    made.fit(module, loader or curated_loader(curator), ckpt_path=resume)
    return module


@pytest.mark.parametrize("sizes", [GROWING, SHRINKING])
@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_of_fixed_length_see_what_the_curator_draws(tmp_path, sizes, workers):
    curator = make_curator(Resize(sizes), epoch_size=40)
    loader = curated_loader(curator, num_workers=workers, persistent_workers=workers > 0)
    module = fit(tmp_path, curator, loader=loader)
    assert module.epochs_seen == seen_by_curator(Resize(sizes), epoch_size=40)


def test_a_lone_last_example_joins_the_batch_before_it(tmp_path):
    module = fit(tmp_path, make_curator(Resize(), epoch_size=41))
    assert [len(batch) for batch in module.epochs_seen[0]] == [8, 8, 8, 8, 9]
    assert module.epochs_seen == seen_by_curator(Resize(), epoch_size=41)


@pytest.mark.parametrize("sizes", [GROWING, SHRINKING])
def test_epochs_that_follow_the_active_set_work_when_loaders_are_reloaded(tmp_path, sizes):
    module = fit(tmp_path, make_curator(Resize(sizes)), reload_dataloaders_every_n_epochs=1)
    assert module.epochs_seen == seen_by_curator(Resize(sizes))
    assert [sum(map(len, epoch)) for epoch in module.epochs_seen] == list(sizes)


def test_epochs_that_follow_the_active_set_are_refused_otherwise(tmp_path):
    with pytest.raises(ConfigError, match=r"reads the number of batches once.*Curator\(epoch_size=64\)"):
        fit(tmp_path, make_curator(Resize()))


def test_training_is_the_curators_own_to_the_bit(tmp_path):
    module = fit(tmp_path, make_curator(Resize(weigh=True), epoch_size=40))
    assert same_weights(module.net.state_dict(), trained_by_curator(Resize(weigh=True), epoch_size=40))


def test_the_weights_reach_the_loss(tmp_path):
    curator = make_curator(Resize((8,), weigh=True), epoch_size=8)
    module = fit(tmp_path, curator, max_epochs=1)
    (positions,) = module.seen[0]
    x, y = curator.examples.gather(torch.tensor(positions))
    raw = 1.0 + torch.tensor(positions) % 3
    model = make_model()
    residual = model(x).softmax(1) - torch.nn.functional.one_hot(y, 2)
    gradient = (raw / raw.mean()).unsqueeze(1) * residual / len(positions)
    expected = model.weight - 0.1 * gradient.T @ x
    torch.testing.assert_close(module.net.weight, expected)


@pytest.mark.parametrize("options", [{"every_n_train_steps": 7}, {"every_n_epochs": 1}, {"every_n_train_steps": 10}])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, options):
    checkpoint = L.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}", **options)
    policy = Resize(weigh=True)
    whole = fit(tmp_path, make_curator(policy, epoch_size=40), callbacks=[checkpoint], enable_checkpointing=True)
    paths = sorted(tmp_path.glob("*.ckpt"), key=lambda path: int(path.stem.split("=")[1]))
    for path in paths[:2]:
        step = int(path.stem.split("=")[1])
        curator = make_curator(policy, epoch_size=40)
        loader = curated_loader(curator, num_workers=int(step == 10))
        again = fit(tmp_path, curator, resume=path, loader=loader)
        assert joined(again.seen) == joined(whole.seen)[step:], path
        assert same_weights(again.state_dict(), whole.state_dict()), path
    assert len(paths) > 1


def test_a_checkpoint_made_by_validation_continues_with_the_next_epoch(tmp_path):
    class Validated(Module):
        def validation_step(self, batch, batch_idx):
            self.log("seen", float(len(self.seen)))

    options = {"epoch_size": 40}
    checkpoint = L.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}", monitor="seen", mode="max")
    valid = DataLoader(torch.zeros(2, 4))
    curator = make_curator(Resize(), **options)
    whole = Validated()
    trainer(tmp_path, CuratorCallback(curator), checkpoint, enable_checkpointing=True, num_sanity_val_steps=1).fit(
        whole, curated_loader(curator), valid
    )
    again, curator = Validated(), make_curator(Resize(), **options)
    trainer(tmp_path, CuratorCallback(curator)).fit(
        again, curated_loader(curator), valid, ckpt_path=tmp_path / "step=10.ckpt"
    )
    assert [epoch for epoch in again.seen if epoch] == whole.epochs_seen[2:]
    assert same_weights(again.state_dict(), whole.state_dict())


def test_a_longer_run_continues_a_finished_one(tmp_path):
    path = tmp_path / "short.ckpt"
    curator = make_curator(Resize(), epoch_size=40)
    short = trainer(tmp_path, CuratorCallback(curator), max_epochs=2)
    short.fit(Module(), curated_loader(curator))
    short.save_checkpoint(path)
    longer = fit(tmp_path, make_curator(Resize(), epoch_size=40), resume=path)
    assert [epoch for epoch in longer.seen if epoch] == seen_by_curator(Resize(), epoch_size=40)[2:]


def test_accumulated_batches_make_one_step_of_the_curator(tmp_path):
    curator = make_curator(Resize(weigh=True), epoch_size=40)
    module = fit(tmp_path, curator, loader=curated_loader(curator, batch_size=4), accumulate_grad_batches=2)
    assert curator.clock.step == 20
    expected = trained_by_curator(Resize(weigh=True), epoch_size=40)
    torch.testing.assert_close(dict(module.net.state_dict()), dict(expected))


def test_a_policy_that_restarts_gets_model_and_schedule_anew(tmp_path):
    def halves(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    module = fit(tmp_path, make_curator(RestartAfterOne(), epoch_size=40), Module(halves))
    assert module.rates[::5] == [0.1, 0.1, 0.05, 0.025]
    constant = fit(tmp_path, make_curator(RestartAfterOne(), epoch_size=40))
    expected = trained_by_curator(RestartAfterOne(), EPOCHS - 1, epoch_size=40)
    assert same_weights(constant.net.state_dict(), expected)


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0),
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 100),
    ],
)
def test_a_scaled_rate_survives_the_scheduler(tmp_path, schedule):
    module = fit(tmp_path, make_curator(TenthOfTheRate(), epoch_size=40), Module(schedule))
    assert module.rates[::5] == pytest.approx([0.1, 0.1, 0.01, 0.01])


def test_a_scheduler_that_would_undo_the_scaling_is_named(tmp_path):
    def cycle(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)

    with pytest.raises(ConfigError, match="OneCycleLR would undo it"):
        fit(tmp_path, make_curator(TenthOfTheRate(), epoch_size=40), Module(cycle))


def test_mistakes_are_named_before_training(tmp_path):
    curator = make_curator(Resize(), epoch_size=40)
    with pytest.raises(ConfigError, match="doesn't draw from the curator"):
        fit(tmp_path, curator, loader=DataLoader(range(64)))
    with pytest.raises(ConfigError, match=r"every-step can change the plan after any step"):
        curated = make_curator(EveryStep(), epoch_size=40)
        fit(tmp_path, curated, loader=DataLoader(range(40), sampler=CuratedSampler(curated), num_workers=1))
    with pytest.raises(ConfigError, match=r"= 16 examples and the curator counts 8"):
        fit(tmp_path, make_curator(epoch_size=40), accumulate_grad_batches=2)
    with pytest.raises(ConfigError, match=r"max_epochs is 1 and the policies' warm-up alone takes 1"):
        fit(tmp_path, make_curator(RestartAfterOne(), epoch_size=40), max_epochs=1)
    with pytest.raises(ConfigError, match="overfit_batches replaces"):
        fit(tmp_path, make_curator(epoch_size=40), overfit_batches=1)
    with pytest.warns(HoldfastWarning, match="Lightning stops after 2 of 5 batches"):
        fit(tmp_path, make_curator(epoch_size=40), limit_train_batches=2)


def test_a_checkpoint_is_not_continued_quietly_without_the_callback(tmp_path):
    checkpoint = L.callbacks.ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3)
    curator = make_curator(Resize(), epoch_size=40)
    fit(tmp_path, curator, callbacks=[checkpoint], enable_checkpointing=True, max_epochs=1)
    forgotten = make_curator(Resize(), epoch_size=40)
    forgotten.start()
    with pytest.raises(CheckpointError, match=r"add CuratorCallback\(curator\)"):
        trainer(tmp_path).fit(Module(), curated_loader(forgotten), ckpt_path=tmp_path / "step=3.ckpt")


def test_a_missing_lightning_is_named_with_its_extra(monkeypatch):
    for name in ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "holdfast.integrations.lightning")
    with pytest.raises(MissingDependencyError, match=r"holdfast\[lightning\]"):
        importlib.import_module("holdfast.integrations.lightning")
