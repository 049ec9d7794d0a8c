"""The victim: trains on what it is given, from scratch, on frozen features or by fine-tuning, and is then asked.

A defence is a policy, so EPIC and everything else that chooses examples plugs in here. Success is that of the last
epoch. A success means little alone: train the same victim on the clean set too, with and without the defence, and count
a target only where both see it rightly.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, get_args

import torch
from torch import nn

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import TensorInputs
from holdfast.errors import ConfigError, nearest
from holdfast.models.heads import find_head
from holdfast.poisoning.attacks.crafting.aims import Aim
from holdfast.poisoning.attacks.crafting.last_epoch import fit_to_the_end
from holdfast.streams import derive_seed
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.events import Listener
from holdfast.training.method import Method
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.policy import Policy
from holdfast.training.run import Run
from holdfast.training.settings import Training

#: How the victim comes to its model.
Scenario = Literal["scratch", "transfer", "fine-tuning"]

_EPIC = Training(
    epochs=40,
    batch_size=128,
    learning_rate=0.1,
    nesterov=True,
    weight_decay=5e-4,
    decay_all=False,
    schedule="steps",
    milestones=(25 / 40, 35 / 40),
    select_by="accuracy",
    augment="crop-flip",
)

#: EPIC's settings on CIFAR-10 (Section 4.3 of the dissertation, and the release), by scenario; the longer training from
#: scratch too.
SETTINGS: dict[str, Training] = {
    "scratch": _EPIC,
    "scratch-200": replace(_EPIC, epochs=200, milestones=(0.5, 0.75)),
    "transfer": replace(_EPIC, milestones=(15 / 40, 25 / 40, 35 / 40)),
    "fine-tuning": replace(_EPIC, learning_rate=1e-4, milestones=(15 / 40, 25 / 40, 35 / 40)),
}


@dataclass(frozen=True, eq=False)
class Answers:
    """How a model answers to what an attacker shows it.

    Attributes:
        success: share that is taken for the adversarial class.
        right: share that is taken for what it is.
        confidence: mean probability of the adversarial class.
    """

    success: float
    right: float
    confidence: float


@dataclass(frozen=True, eq=False)
class Victim(Answers):
    """A trained victim and how it answers.

    Attributes:
        model: with the weights of the last epoch.
        test: the model on the clean test set.
        seconds: time by activity: train, policy, evaluate, checkpoint.
    """

    model: nn.Module
    test: GroupReport
    seconds: dict[str, float]


def ask(model: nn.Module, aim: Aim, test: Examples, seed: int = 0) -> Answers:
    """Show a model what the attacker wants to know.

    Args:
        model: any model on pixels.
        aim: what the attacker wants.
        test: the test set, whose source class a backdoor's patch is put on.
        seed: names the draws of such images and places.

    Returns:
        The answers.
    """
    shown = aim.shown(test, seed)
    answers = ModelOutputs(model, shown)
    predicted = answers.predictions()
    return Answers(
        success=float((predicted == aim.adversarial_class).float().mean()),
        right=float((predicted == shown.labels).float().mean()),
        confidence=float(answers.probabilities()[:, aim.adversarial_class].mean()),
    )


def train_victim(
    model: nn.Module,
    splits: Splits,
    aim: Aim,
    settings: Training,
    *,
    scenario: Scenario = "scratch",
    defence: Method | Policy | None = None,
    run: Run | None = None,
    listeners: Sequence[Listener] = (),
    head: str | None = None,
    on_images: bool = False,
) -> Victim:
    """Train a victim and ask it what the attacker wants to know.

    Args:
        model: untrained for `scratch`; otherwise trained elsewhere, and its head is made new. It is left as it is.
        splits: in pixels; poison the training set by ``poisoned.poison(splits)``, or don't, for a control.
        aim: what the attacker wants.
        settings: of the training, see `SETTINGS`; its seed decides the new head as well.
        scenario: `scratch`; `transfer`, where only the head trains and everything else stays in evaluation mode;
            `fine-tuning`, where everything trains.
        defence: what chooses examples; nothing by default.
        run: a directory for a run that survives a kill.
        listeners: called with every event of the training.
        head: name of the model's head where it can't be found.
        on_images: keep to images in transfer learning also where nothing augments them, for a defence that changes
            them; otherwise features are computed once, and the head sees nothing else.

    Returns:
        The victim.
    """
    if scenario not in get_args(Scenario):
        raise ConfigError(f"there is no scenario {scenario!r}{nearest(scenario, get_args(Scenario))}")
    model = copy.deepcopy(model)
    if scenario != "scratch":
        renew_head(model, settings.seed, head)
    trained, parts, name = model, splits, head
    if scenario == "transfer" and (on_images or settings.augment != "none"):
        name = f"model.{find_head(model, head)[0]}".rstrip(".")
        trained = FrozenExtractor(model, head)
    elif scenario == "transfer":
        trained, parts, name = *_on_features(model, splits, head), None
    result = fit_to_the_end(trained, parts, defence, settings, run=run, listeners=listeners, head=name)
    answers = asdict(ask(model, aim, splits.test, settings.seed))
    return Victim(**answers, model=model, test=result.test_last, seconds=result.seconds)


def renew_head(model: nn.Module, seed: int, head: str | None = None) -> None:
    """Draw the weights of a model's head anew; the caller's global generator is left as it was.

    Args:
        model: changed in place.
        seed: decides the draw.
        head: the head's name where it can't be found.
    """
    _, layer = find_head(model, head)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "head"))
        layer.reset_parameters()


class FrozenExtractor(nn.Module):
    """A model of which only the head trains; the rest stays in evaluation mode, so batch norm can't drift.

    Args:
        model: its parameters outside of the head are frozen in place.
        head: the head's name where it can't be found.
    """

    def __init__(self, model: nn.Module, head: str | None = None) -> None:
        super().__init__()
        self.model = model
        _, layer = find_head(model, head)
        model.requires_grad_(False)
        layer.requires_grad_()

    def train(self, mode: bool = True) -> FrozenExtractor:
        """Evaluation mode, whatever is asked for: a linear head has no other."""
        super().train(False)
        return self

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The model's logits."""
        logits: torch.Tensor = self.model(inputs)
        return logits


def _on_features(model: nn.Module, splits: Splits, head: str | None) -> tuple[nn.Module, Splits]:
    """The head alone, and what it sees of the data."""
    _, layer = find_head(model, head)

    def features(examples: Examples) -> Examples:
        return replace(
            examples, inputs=TensorInputs(ModelOutputs(model, examples, features=True, head=head).features())
        )

    seen = Splits(splits.name, features(splits.train), features(splits.validation), features(splits.test))
    return layer, seen
