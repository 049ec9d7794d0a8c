import pytest
import torch
from torch import nn

from holdfast.data.examples import Examples
from holdfast.errors import CheckpointError, ConfigError
from holdfast.training.curator import Curator
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
    make_examples,
    make_model,
    same_weights,
    seen_by_curator,
    trained_by_curator,
)

transformers = pytest.importorskip("transformers")

from holdfast.integrations.hf_trainer import POSITION, WEIGHT, curated_trainer  # noqa: E402


class Model(nn.Module):
    """The shared linear model under transformers' conventions."""

    def __init__(self):
        super().__init__()
        self.net = make_model()

    def forward(self, x, labels=None):
        logits = self.net(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class KwargsModel(Model):
    def forward(self, x, labels=None, **kwargs):
        outputs = super().forward(x, labels)
        if "num_items_in_batch" in kwargs:
            outputs["loss"] = outputs["loss"] * len(labels) / kwargs["num_items_in_batch"]
        return outputs


class Spy(transformers.Trainer):
    """Writes down the examples of every batch and the rate of every step."""

    def training_step(self, model, inputs, *args, **options):
        if not hasattr(self, "seen"):
            self.seen, self.rates = {}, []
        self.seen.setdefault(int(self.state.epoch or 0), []).append(inputs[POSITION].tolist())
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        return super().training_step(model, inputs, *args, **options)

    def create_optimizer(self, *args, **options):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.args.learning_rate)
        return self.optimizer


def named_curator(policy=None, **options):
    examples = make_examples()
    named = Examples.of({"x": examples.inputs.values}, examples.labels)
    return Curator(named, policy, **{"batch_size": 8, "seed": 3, "epoch_size": 40, **options})


def make_trainer(tmp_path, curator, *, model=None, base=Spy, dataset=None, collator=None, **options):
    options = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": 8,
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "logging_strategy": "no",
        "dataloader_pin_memory": False,
        **options,
    }
    args = transformers.TrainingArguments(str(tmp_path), **options)
    return curated_trainer(base, curator)(
        model=model or Model(), args=args, train_dataset=dataset, data_collator=collator
    )


def train(tmp_path, curator, *, resume=None, **options):
    trainer = make_trainer(tmp_path, curator, **options)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def expected_weights(policy, epochs=EPOCHS):
    return trained_by_curator(policy, epochs, epoch_size=40)


@pytest.mark.parametrize("sizes", [GROWING, SHRINKING])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_epoch_sees_what_the_curator_draws(tmp_path, sizes, workers):
    options = {"dataloader_num_workers": workers, "dataloader_persistent_workers": workers > 0}
    trainer = train(tmp_path, named_curator(Resize(sizes)), **options)
    assert list(trainer.seen.values()) == seen_by_curator(Resize(sizes), epoch_size=40)
    assert trainer.state.global_step == trainer.state.max_steps == 20


def test_epochs_that_follow_the_active_set_are_refused():
    with pytest.raises(ConfigError, match=r"plans all its steps before the first one.*Curator\(epoch_size=64\)"):
        curated_trainer(transformers.Trainer, named_curator(Resize(), epoch_size=None))


@pytest.mark.parametrize("model", [Model, KwargsModel])
@pytest.mark.parametrize("weigh", [False, True])
def test_training_is_the_curators_own(tmp_path, model, weigh):
    trainer = train(tmp_path, named_curator(Resize(weigh=weigh)), model=model())
    wanted = expected_weights(Resize(weigh=weigh))
    torch.testing.assert_close(dict(trainer.model.net.state_dict()), dict(wanted), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("model", [Model, KwargsModel])
def test_accumulated_batches_make_one_step_of_the_curator(tmp_path, model):
    curator = named_curator(Resize(weigh=True))
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    trainer = train(tmp_path, curator, model=model(), **options)
    assert trainer.state.global_step == 20
    wanted = expected_weights(Resize(weigh=True))
    torch.testing.assert_close(dict(trainer.model.net.state_dict()), dict(wanted), rtol=1e-5, atol=1e-6)


def test_the_weights_reach_the_loss(tmp_path):
    curator = named_curator(Resize((8,), weigh=True), epoch_size=8)
    trainer = train(tmp_path, curator, num_train_epochs=1)
    ((positions,),) = trainer.seen.values()
    inputs, y = curator.examples.gather(torch.tensor(positions))
    raw = 1.0 + torch.tensor(positions) % 3
    model = make_model()
    residual = model(inputs["x"]).softmax(1) - nn.functional.one_hot(y, 2)
    gradient = (raw / raw.mean()).unsqueeze(1) * residual / len(positions)
    torch.testing.assert_close(trainer.model.net.weight, model.weight - 0.1 * gradient.T @ inputs["x"])


@pytest.mark.parametrize(
    "options",
    [
        {"save_strategy": "steps", "save_steps": 0.35},
        {"save_strategy": "epoch"},
        {"save_strategy": "steps", "save_steps": 10},
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, options):
    policy = Resize(weigh=True)
    whole = train(tmp_path, named_curator(policy), save_only_model=False, **options)
    step = {0.35: 7, 10: 10}.get(options.get("save_steps"), 5)
    again = train(tmp_path, named_curator(policy), resume=str(tmp_path / f"checkpoint-{step}"), **options)
    assert joined(again.seen.values()) == joined(whole.seen.values())[step:]
    assert same_weights(again.model.state_dict(), whole.model.state_dict())


def test_resuming_finds_the_last_checkpoint_or_says_that_there_is_none(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        train(tmp_path, named_curator(), resume=True)
    train(tmp_path, named_curator(Resize()), save_strategy="epoch", num_train_epochs=2)
    again = train(tmp_path, named_curator(Resize()), resume=True)
    assert list(again.seen.values()) == seen_by_curator(Resize(), epoch_size=40)[2:]
    (tmp_path / "checkpoint-10" / "curator.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"has no curator.safetensors, so it was saved without a curator"):
        train(tmp_path, named_curator(Resize()), resume=True)


def test_training_twice_goes_on(tmp_path):
    trainer = train(tmp_path, named_curator(Resize()), num_train_epochs=2)
    first, trainer.seen = trainer.seen, {}
    trainer.train()
    assert [*first.values(), *trainer.seen.values()] == seen_by_curator(Resize(), epoch_size=40)


def test_a_policy_that_restarts_gets_model_and_schedule_anew(tmp_path):
    trainer = train(tmp_path, named_curator(RestartAfterOne()), lr_scheduler_type="linear")
    budget = [0.1 * (1 - step / 15) for step in range(15)]
    assert trainer.rates == pytest.approx(budget[:5] + budget)
    constant = train(tmp_path, named_curator(RestartAfterOne()))
    assert same_weights(constant.model.net.state_dict(), expected_weights(RestartAfterOne(), EPOCHS - 1))


def test_a_restart_after_a_resume_starts_where_the_first_run_did(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 3, "lr_scheduler_type": "linear"}
    whole = train(tmp_path, named_curator(RestartAfterOne()), **options)
    again = train(tmp_path, named_curator(RestartAfterOne()), resume=str(tmp_path / "checkpoint-3"), **options)
    assert again.rates == whole.rates[3:]
    assert same_weights(again.model.state_dict(), whole.model.state_dict())


def test_a_scaled_rate_survives_the_scheduler(tmp_path):
    trainer = train(tmp_path, named_curator(TenthOfTheRate()))
    assert trainer.rates[::5] == pytest.approx([0.1, 0.1, 0.01, 0.01])


def test_a_dataset_of_the_users_goes_through_its_collator(tmp_path):
    examples = make_examples()
    rows = [
        {"x": x, "label": int(y), "text": "unused"} for x, y in zip(*examples.gather(torch.arange(64)), strict=True)
    ]
    curator = make_curator(Resize(weigh=True), epoch_size=40)
    trainer = train(tmp_path, curator, dataset=rows)
    assert list(trainer.seen.values()) == seen_by_curator(Resize(), epoch_size=40)
    wanted = expected_weights(Resize(weigh=True))
    torch.testing.assert_close(dict(trainer.model.net.state_dict()), dict(wanted), rtol=1e-6, atol=1e-7)


def test_evaluation_is_the_trainers_own(tmp_path):
    curator = named_curator(Resize(weigh=True))
    trainer = train(tmp_path, curator, num_train_epochs=1)
    x = curator.examples.inputs.values["x"]
    rows = [{"x": x[i], "labels": int(curator.examples.labels[i])} for i in range(64)]
    wanted = nn.functional.cross_entropy(trainer.model.net(x), curator.examples.labels)
    assert trainer.evaluate(rows)["eval_loss"] == pytest.approx(float(wanted), rel=1e-5)


def test_mistakes_are_named_before_training(tmp_path):
    with pytest.raises(ConfigError, match="every-step can change the plan"):
        train(tmp_path, named_curator(EveryStep()), dataloader_num_workers=1)
    with pytest.raises(ConfigError, match="has 3 examples and the curator 64"):
        make_trainer(tmp_path, named_curator(), dataset=[{}] * 3)
    with pytest.raises(ConfigError, match="has no order to draw from"):
        make_trainer(tmp_path, named_curator(), dataset=iter([]))
    with pytest.raises(ConfigError, match=r"= 4 examples and the curator counts 8"):
        train(tmp_path, named_curator(), per_device_train_batch_size=4)
    with pytest.raises(ConfigError, match=r"epochs of 41 draws leave a single one.*multiple of the batch size"):
        train(tmp_path, named_curator(epoch_size=41))
    with pytest.raises(ConfigError, match="one unnamed tensor"):
        train(tmp_path, make_curator(epoch_size=40))
    with pytest.raises(ConfigError, match=r"num_train_epochs is 1 and the policies' warm-up alone takes 1"):
        train(tmp_path, named_curator(RestartAfterOne()), num_train_epochs=1)


def test_weights_that_would_be_lost_are_an_error(tmp_path):
    def forgetful(items):
        return {"x": torch.stack([item["x"] for item in items]), "labels": torch.tensor([i["labels"] for i in items])}

    class Plain(transformers.Trainer):
        pass

    with pytest.raises(ConfigError, match=f"dropped the column {WEIGHT}"):
        train(tmp_path, named_curator(Resize(weigh=True)), base=Plain, collator=forgetful)

    class Sequences(Model):
        def forward(self, x, labels=None):
            return {"loss": None, "logits": self.net(x).unsqueeze(1)}

    with pytest.raises(ConfigError, match="override example_losses"):
        train(tmp_path, named_curator(Resize(weigh=True)), model=Sequences())
