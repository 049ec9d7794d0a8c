"""Personalization that keeps adversarial transferability to the shared model, so that it picks up no local shortcut.

While a client fine-tunes, two terms hold it back: on adversarial examples of the shared model it must predict what the
shared model predicts (`R_adv`), and its weights must stay near (`R_L2`, Eq. 11). Only the client's own data of one
environment and the shared model are needed (Personalized FL with spurious features, Section 5). With one term left out,
benign examples in place of adversarial ones, or flipped labels, it is the document's ablations.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.data.clients.clients import ClientPart
from holdfast.errors import ConfigError
from holdfast.federated.engine.client_batch import ClientBatch
from holdfast.federated.engine.network import Network
from holdfast.federated.personalization.adversarial import search_budget
from holdfast.federated.personalization.base import ROLE, AllClients, PostHocPersonalizer
from holdfast.federated.personalization.ditto.proximal import refuse_negative
from holdfast.federated.personalization.early_stopping import RECORDED, AttackedClients, EarlyStoppedFineTuning

_log = logging.getLogger(__name__)

#: How the distance to the shared model enters the loss: itself, as printed, or half its square, as in Ditto.
Form = Literal["norm", "half-squared"]

#: Which coefficients are admissible: those with which mean validation accuracy does not fall `throughout`
#: personalization, those with which it has not fallen at its `end`, or those that end as high as `fine-tuning`.
Rule = Literal["throughout", "end", "fine-tuning"]

#: Coefficients to try, and how much validation accuracy may fall.
GRID = (0.01, 0.1, 1.0, 10.0)
TOLERANCE = 0.005
_SMOOTHING = 1e-12


def consistency(shared: Tensor, own: Tensor) -> Tensor:
    """``-sum_i p_i log q_i`` of the softmax p of the shared logits and q of the own ones, (..., classes) to (...).

    Its gradient with respect to the own logits is ``q - p``. (The document prints it without the minus, which would
    push the models apart.)
    """
    return -(shared.softmax(-1) * F.log_softmax(own, -1)).sum(-1)


def distance(models: Tensor, shared: Tensor, form: Form = "norm") -> Tensor:
    """Distance of models (clients, P) from the shared one (P,), shape (clients,); its gradient is 0 where it is 0."""
    squares = (models - shared).square().sum(-1)
    return (squares + _SMOOTHING).sqrt() if form == "norm" else squares / 2


@dataclass(frozen=True)
class FineTuned(EarlyStoppedFineTuning):
    """Plain fine-tuning of the shared model, with checkpoints: what learns the shortcut of its environment."""

    name: ClassVar[str] = "ft"


@dataclass(frozen=True)
class Near(EarlyStoppedFineTuning):
    """Fine-tuning near the shared model: Ditto's objective as a fine-tuning regulariser, with one lambda for all.

    Attributes:
        lambda_: strength. ``auto`` takes, of 0.1 and 1, the one with the best mean validation accuracy.
        form: the distance itself, as the document compares it, or half its square, as Ditto defines it.
    """

    name: ClassVar[str] = "near"
    lambda_: float | Literal["auto"] = "auto"
    form: Form = "norm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.lambda_, str):
            refuse_negative(self.lambda_)

    def regularizer(self, at: Tensor, now: Tensor, batch: ClientBatch, attacked: AttackedClients) -> Tensor | None:
        """``lambda ||v - w||``, or ``(lambda/2) ||v - w||^2``."""
        return _pull(self.lambda_, at, attacked, self.form)

    def choose_hyperparameters(self, everybody: AllClients, shared: Tensor) -> PostHocPersonalizer:
        """Choose lambda by validation accuracy."""
        if self.lambda_ != "auto":
            return super().choose_hyperparameters(everybody, shared)
        tried = [replace(self, lambda_=lambda_) for lambda_ in (0.1, 1.0)]
        best = max(tried, key=lambda method: _validation_accuracy(everybody, shared, method))
        return best.choose_hyperparameters(everybody, shared)


@dataclass(frozen=True)
class Transferability(EarlyStoppedFineTuning):
    """Fine-tuning that keeps transferability, see the module.

    Attributes:
        adversarial: coefficient of `R_adv`. ``auto`` takes the largest of `GRID` that the rule admits.
        weights: coefficient of `R_L2`, chosen likewise.
        rule: which coefficients are admissible: those with which the mean validation accuracy of clients does not fall
            `throughout` personalization, from the shared model on; those with which it has not fallen at the `end`; or
            those with which it ends as high as after plain `fine-tuning`.
        joint: try both coefficients together, the largest product first, instead of one after the other.
        form: of the distance in `R_L2`.
        on: whether predictions are kept on `adversarial` examples, or on `benign` ones (an ablation).
        only_fooled: whether only examples that fool the shared model count.
        search: whether the budget is lowered until 30 to 50 percent of the training examples fool the shared model.
    """

    name: ClassVar[str] = "transferability"
    adversarial: float | Literal["auto"] = "auto"
    weights: float | Literal["auto"] = "auto"
    rule: Rule = "throughout"
    joint: bool = True
    form: Form = "norm"
    on: Literal["adversarial", "benign"] = "adversarial"
    only_fooled: bool = False
    search: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("adversarial", "weights"):
            value = getattr(self, option)
            if not isinstance(value, str) and not value >= 0:
                raise ConfigError(f"the coefficient {option} is {value}; give 0 or more, or auto")

    def regularizer(self, at: Tensor, now: Tensor, batch: ClientBatch, attacked: AttackedClients) -> Tensor | None:
        """``lambda_adv R_adv + lambda_L2 R_L2``."""
        near = _pull(self.weights, at, attacked, self.form)
        if not self.adversarial:
            return near
        crafted = attacked.train
        places = crafted.places(batch)
        inputs, targets = crafted.inputs, crafted.logits
        if self.on == "benign":
            inputs, targets = crafted.clean, crafted.clean_logits
        own = attacked.stack.outputs(at, batch, inputs[places], statistics=now, role=ROLE)
        apart = consistency(_logits(attacked.network, targets[places]), _logits(attacked.network, own))
        if self.only_fooled:
            apart = apart * ~attacked.network.correct(crafted.logits[places], batch.labels)
        consistent = _number(self.adversarial) * (apart * batch.weights).sum()
        return consistent if near is None else consistent + near

    def score(self, accuracy: float, transferred: float) -> float:
        """Validation accuracy minus what transfers less than to the shared model itself."""
        if not self.adversarial or math.isnan(transferred):
            return accuracy
        return accuracy - (1 - transferred)

    def choose_hyperparameters(self, everybody: AllClients, shared: Tensor) -> PostHocPersonalizer:
        """Search the budget, then the coefficients; only training and validation data is seen."""
        chosen = self._within_budget(everybody, shared)
        if chosen.adversarial == "auto" and chosen.weights == "auto" and self.joint:
            pairs = sorted(product(GRID, GRID), key=lambda pair: (round(math.log10(pair[0] * pair[1])), *pair))
            tried = [replace(chosen, adversarial=a, weights=w) for a, w in reversed(pairs)]
            chosen = chosen._first_admissible(tried, everybody, shared)
        if chosen.adversarial == "auto":
            rest = 0.0 if chosen.weights == "auto" else chosen.weights
            tried = [replace(chosen, adversarial=value, weights=rest) for value in reversed(GRID)]
            found = chosen._first_admissible(tried, everybody, shared)
            chosen = replace(chosen, adversarial=found.adversarial)
        if chosen.weights == "auto":
            tried = [replace(chosen, weights=value) for value in reversed(GRID)]
            chosen = chosen._first_admissible(tried, everybody, shared)
        return super(Transferability, chosen).choose_hyperparameters(everybody, shared)

    def _within_budget(self, everybody: AllClients, shared: Tensor) -> Transferability:
        if not self.search:
            return self
        budget = search_budget(everybody.training, shared, self.attack)
        if budget.weak:
            _log.warning(
                "the attack is weak: with its full budget of %g it fools the shared model on %.0f%% of the examples, "
                "where 30%% to 50%% are wanted",
                *(budget.epsilon, 100 * budget.path[-1][1]),
            )
        return replace(self, epsilon=budget.epsilon, search=False)

    def _first_admissible(
        self, tried: Sequence[Transferability], everybody: AllClients, shared: Tensor
    ) -> Transferability:
        """The first of `tried` that the rule admits; the last, with a warning, where it admits none."""
        start = _mean_accuracy(everybody, shared, None)
        reference = start
        if self.rule == "fine-tuning":
            reference = _validation_accuracy(everybody, shared, replace(self, adversarial=0.0, weights=0.0))
        for method in tried:
            end = _validation_accuracy(everybody, shared, method)
            fallen = reference - end
            if self.rule == "throughout":
                fallen = _largest_fall([start, *_curve(everybody, method)])
            if fallen <= TOLERANCE:
                return method
        last = tried[-1]
        _log.warning(
            "with every coefficient validation accuracy falls by more than %g (%s); %s and %s are taken",
            *(TOLERANCE, self.rule, last.adversarial, last.weights),
        )
        return last


@dataclass(frozen=True)
class FlippedLabel(EarlyStoppedFineTuning):
    """Fine-tuning on the training examples and on adversarial ones, labelled with what the shared model takes them for.

    Only adversarial examples that fool the shared model are added; the number of steps is that of the other methods.
    """

    name: ClassVar[str] = "flipped-label"

    def batches(self, attacked: AttackedClients) -> Iterator[ClientBatch]:
        """Mini-batches of the enlarged training data."""
        stack, crafted = attacked.stack, attacked.train
        fooled = ~attacked.network.correct(crafted.logits, crafted.labels)
        taken_for = _logits(attacked.network, crafted.logits).argmax(-1)
        inputs, labels, counts = [], [], []
        for place in range(len(stack)):
            rows = crafted.of(place)
            added = fooled[rows]
            inputs += [crafted.clean[rows], crafted.inputs[rows][added]]
            labels += [crafted.labels[rows], taken_for[rows][added]]
            counts.append(len(added) + int(added.sum()))
        enlarged = ClientPart.of_counts(torch.cat(inputs), torch.cat(labels), torch.tensor(counts))
        drawn = zip(stack.clients.tolist(), counts, stack.steps.tolist(), enlarged.offsets.tolist(), strict=False)
        rows_of = [stack.training.stream.rows(id_, size, 0, steps) + first for id_, size, steps, first in drawn]
        return stack.walk(rows_of, stack.steps, enlarged)


def _pull(lambda_: float | str, at: Tensor, attacked: AttackedClients, form: Form) -> Tensor | None:
    strength = _number(lambda_)
    if not strength:
        return None
    size = attacked.network.trainable
    return strength * distance(at[:, :size], attacked.stack.received[:size], form).sum()


def _number(coefficient: float | str) -> float:
    if isinstance(coefficient, str):
        raise ConfigError(f"a coefficient is {coefficient!r}; `federate` settles it, or give a number")
    return coefficient


def _validation_accuracy(everybody: AllClients, shared: Tensor, method: EarlyStoppedFineTuning) -> float:
    """Mean over clients at the end of training."""
    everybody.personalize_all(replace(method, keep="last"), shared)
    return _mean_accuracy(everybody, shared, method.label)


def _curve(everybody: AllClients, method: EarlyStoppedFineTuning) -> list[float]:
    """Mean validation accuracy over clients at each checkpoint of the method that was run last."""
    record = method.record(everybody.rows(method.label), everybody.training)
    curve: list[float] = record[:, :, RECORDED.index("validation")].double().nanmean(0).tolist()
    return curve


def _largest_fall(curve: Sequence[float]) -> float:
    """How far a curve falls below what it had reached before."""
    return max(best - value for best, value in zip(accumulate(curve, max), curve, strict=True))


def _mean_accuracy(everybody: AllClients, shared: Tensor, label: str | None) -> float:
    scores = everybody.score_all("validation", shared, label)
    return float(scores.accuracy[scores.count > 0].mean())


def _logits(network: Network, outputs: Tensor) -> Tensor:
    """Outputs as logits of classes; a single margin is the logit of class 1 against 0."""
    return F.pad(outputs, (1, 0)) if network.task == "margin" else outputs
