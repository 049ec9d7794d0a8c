"""SSA (spread spurious attribute): learn the attribute from a few labelled examples, predict it for all, then GroupDRO.

Nam, Kim, Lee and Shin, "Spread Spurious Attribute" (ICLR 2022, https://arxiv.org/abs/2204.02070); a baseline of SPARE.
The labelled examples are the validation set, whose attributes are therefore *trained on*: half of it teaches a
predictor of the attribute, the other half chooses the predictor's checkpoint. Unlabelled training examples that the
predictor is sure of join in, as many of each group as make the groups' totals equal. Each third of the training set is
labelled by a predictor that never saw it. Use it when attributes are known for a small set and the training set has
none.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.data.inputs import InputBatch
from holdfast.errors import ConfigError, DataError, HoldfastWarning
from holdfast.models.heads import find_head
from holdfast.primitives.ranks import rank_in_part
from holdfast.spurious.group_inference.base import GroupInference, spread_over
from holdfast.spurious.last_layer.folds import folds
from holdfast.spurious.objectives.group_dro import GroupDroLoss
from holdfast.spurious.reweighting.balancing import balance_weights
from holdfast.streams import derive_seed, torch_stream
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.model_outputs import ModelOutputs, call, device_of, to_device
from holdfast.training.plan import Plan
from holdfast.training.policy import Context
from holdfast.training.sampling_order import SamplingOrder
from holdfast.training.settings import Training, build_optimizer

_log = logging.getLogger(__name__)


def confident_examples(confidence: Tensor, groups: Tensor, labelled_counts: Tensor, threshold: float) -> Tensor:
    """Which unlabelled examples join in: of each group the surest ones, so that all groups get the same total.

    The total is set by the smallest labelled group, with those of its unlabelled examples that reach the threshold.
    Every other group is filled up to it, or keeps its labelled examples alone where these are more.

    Args:
        confidence: probability of each example's most likely attribute, shape (n,).
        groups: its group under that attribute, int64 of shape (n,).
        labelled_counts: labelled examples of each group, int64 of shape (groups,).
        threshold: confidence from which examples of the smallest labelled group join in.

    Returns:
        bool of shape (n,).

    Example:
        >>> import torch
        >>> sure = torch.tensor([0.99, 0.96, 0.8, 0.9, 0.7, 0.6, 0.5])
        >>> confident_examples(sure, torch.tensor([0, 0, 0, 1, 1, 1, 1]), torch.tensor([2, 3]), 0.95).tolist()
        [True, True, False, True, False, False, False]
    """
    present = labelled_counts > 0
    smallest = int(torch.where(present, labelled_counts, labelled_counts.max() + 1).argmin())
    sure = int(((groups == smallest) & (confidence >= threshold)).sum())
    room = (labelled_counts[smallest] + sure - labelled_counts).clamp(min=0)
    surest_first = confidence.argsort(descending=True, stable=True)
    ordered = groups[surest_first]
    chosen = torch.zeros(len(groups), dtype=torch.bool)
    chosen[surest_first] = rank_in_part(ordered) < room[ordered]
    return chosen


def attribute_predictor(model: nn.Module, n_values: int, head: str | None = None) -> nn.Module:
    """A copy of the model, weights included, with a new head for the attribute; `model` is left as it is.

    Args:
        model: what the run trains.
        n_values: how many values the attribute has.
        head: the head's name where it can't be found.

    Returns:
        The copy. The new head's weights come from torch's global generator, as those of any new layer.
    """
    predictor = copy.deepcopy(model)
    name, old = find_head(predictor, head)
    new = nn.Linear(old.in_features, n_values, bias=old.bias is not None).to(old.weight)
    if not name:
        return new
    parent, _, child = name.rpartition(".")
    setattr(predictor.get_submodule(parent), child, new)
    return predictor


def descend(predictor: nn.Module, optimizer: torch.optim.Optimizer, inputs: InputBatch, attributes: Tensor) -> None:
    """One step on the mean cross-entropy of a batch, by the gradient of this batch alone.

    A public implementation never clears the gradient, so that each of its steps follows the sum of all before.
    """
    loss = F.cross_entropy(call(predictor, inputs), attributes)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@dataclass(kw_only=True)
class Ssa(GroupInference):
    """Predict the attribute from the validation set's labels, then GroupDRO on class x prediction.

    Needs no training group labels, but trains the predictor on those of the validation set. The run's model is trained
    once, with no first stage. The predictor has its architecture and starts from its weights, with a new head.

    Attributes:
        iterations: most steps of a predictor; published 1000 to 45000.
        check_every: steps between choices of confident examples and looks at the held-out half.
        threshold: confidence from which unlabelled examples of the smallest labelled group join in.
        splits: parts of the training set; each is labelled by a predictor trained on the others.
        batch_size: of the predictors.
        learning_rate: of the predictors.
        momentum: of the predictors.
        weight_decay: of the predictors.
        eta_q: step size of GroupDRO's group weights; 0 keeps them uniform.
        adjustment: C of GroupDRO's generalisation adjustment C / sqrt(group size).
    """

    name: ClassVar[str] = "ssa"
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = "validation"

    # There is no first stage, so its settings are no options here.
    infer_epoch: ClassVar[int] = 0  # type: ignore[misc]
    first_learning_rate: ClassVar[float | None] = None  # type: ignore[misc]
    first_weight_decay: ClassVar[float | None] = None  # type: ignore[misc]

    iterations: int = 1000
    check_every: int = 100
    threshold: float = 0.95
    splits: int = 3
    batch_size: int = 64
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4
    eta_q: float = 0.01
    adjustment: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, least in (("iterations", 1), ("check_every", 1), ("splits", 2), ("batch_size", 1)):
            if getattr(self, option) < least:
                raise ConfigError(f"{option} of ssa is {getattr(self, option)}; give at least {least}")
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold of ssa is {self.threshold}; give a probability above 0")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate of ssa is {self.learning_rate}; give a positive number")
        self.objective()

    @property
    def needs_head(self) -> bool:
        """The copy that predicts the attribute gets another head."""
        return True

    def objective(self) -> GroupDroLoss:
        """GroupDRO's loss, over the predicted groups."""
        return GroupDroLoss(self.eta_q, self.adjustment)

    def infer(self, context: Context) -> Tensor:
        """Class x predicted attribute, numbered as the validation set's groups are."""
        validation, model = context.validation, context.model
        if validation is None or validation.attributes is None:
            raise DataError(
                "ssa learns the attribute from a validation set that has it, and there is none; "
                "give the validation set attributes, or use a method that needs none, such as spare"
            )
        if model is None:
            raise ConfigError("ssa trains a copy of the model and was given none; pass the model")
        active = context.active_positions()
        unlabelled = context.examples.subset(active)
        n_values = len(validation.attribute_names)
        device = device_of(model)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            predicted = self._predict(model, unlabelled, validation, context)
        return spread_over(active, unlabelled.labels * n_values + predicted, len(context.examples))

    def plan_from_groups(self, context: Context, groups: Tensor) -> Plan:
        """Draw the predicted groups equally often."""
        active = context.active_positions()
        return Plan(sample_weight=spread_over(active, balance_weights(groups[active]), len(groups)))

    def _predict(self, model: nn.Module, unlabelled: Examples, validation: Examples, context: Context) -> Tensor:
        """Attribute of each unlabelled example by the predictor that never saw it; reseeds torch's generator."""
        split = folds(unlabelled.labels, self.splits, torch_stream(context.seed, self.name, "splits"))
        half = folds(_groups(validation), 2, torch_stream(context.seed, self.name, "halves"))
        parts = [*(split == number for number in range(self.splits)), half == 0, half == 1]
        if not all(part.any() for part in parts):
            raise DataError(
                f"ssa needs {self.splits} parts of the training set and two halves of the validation set, and the "
                f"{len(unlabelled)} and {len(validation)} examples are too few; use a method that needs fewer, such as "
                "spare"
            )
        taught, held_out = (validation.subset((half == part).nonzero().flatten()) for part in (0, 1))
        predicted = torch.zeros_like(unlabelled.labels)
        for number in range(self.splits):
            seed = derive_seed(context.seed, self.name, number)
            torch.manual_seed(seed)
            predictor = attribute_predictor(model, len(validation.attribute_names), context.head)
            others = unlabelled.subset((split != number).nonzero().flatten())
            report = self._train(predictor, taught, held_out, others, seed)
            worst, mean = report.worst_accuracy, report.group_mean
            _log.info("ssa's predictor %d is right for %.3f of its worst held-out group", number, worst)
            if mean <= 1 / len(validation.attribute_names):
                warnings.warn(
                    f"ssa's attribute predictor is right for {mean:.0%} of the average held-out group, no better than "
                    "guessing; raise iterations or change learning_rate",
                    HoldfastWarning,
                    stacklevel=2,
                )
            own = (split == number).nonzero().flatten()
            predicted[own] = ModelOutputs(predictor, unlabelled.subset(own)).predictions()
        return predicted

    def _train(
        self, predictor: nn.Module, taught: Examples, held_out: Examples, unlabelled: Examples, seed: int
    ) -> GroupReport:
        """Train the predictor, leave it with the weights that are best for the worst held-out group; their report."""
        options = Training(learning_rate=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay)
        optimizer = build_optimizer(predictor, options)
        n_values = len(taught.attribute_names)
        counts = torch.bincount(_groups(taught), minlength=unlabelled.n_classes * n_values)
        pool, weights = [taught], dict[str, Tensor]()
        best: GroupReport | None = None
        for start in range(0, self.iterations, self.check_every):
            draws = SamplingOrder(Plan(), sum(map(len, pool)), seed, since=start)
            predictor.train()
            for step in range(min(self.check_every, self.iterations - start)):
                batch = gather_from(pool, draws.take(step * self.batch_size, self.batch_size), device_of(predictor))
                descend(predictor, optimizer, *batch)
            report = judge(predictor, held_out)
            if best is None or report.worst_accuracy > best.worst_accuracy:
                best = report
                weights = {name: tensor.detach().clone() for name, tensor in predictor.state_dict().items()}
            if best.worst_accuracy == 1:
                break
            # In float32 the probabilities of a trained predictor are all 1, and the surest could not be told.
            confidence, guessed = ModelOutputs(predictor, unlabelled).logits().double().softmax(1).max(1)
            guess = replace(unlabelled, attributes=guessed, attribute_names=taught.attribute_names)
            chosen = confident_examples(confidence, _groups(guess), counts, self.threshold)
            pool = [taught, guess.subset(chosen.nonzero().flatten())]
        assert best is not None
        predictor.load_state_dict(weights)
        return best


def judge(predictor: nn.Module, examples: Examples) -> GroupReport:
    """How often the predictor gives the right attribute in each group, class x attribute."""
    return GroupReport.of_arrays(
        ModelOutputs(predictor, examples).predictions(), _attributes(examples), _groups(examples)
    )


def gather_from(pool: Sequence[Examples], positions: Tensor, device: torch.device) -> tuple[InputBatch, Tensor]:
    """Inputs and attributes at `positions` of several sets counted one after the other; in ascending order."""
    ordered = positions.sort().values
    pieces, offset = list[InputBatch](), 0
    for part in pool:
        own = ordered[(ordered >= offset) & (ordered < offset + len(part))] - offset
        offset += len(part)
        if len(own):
            pieces.append(to_device(part.inputs.gather(own), device))
    attributes = torch.cat([_attributes(part) for part in pool])
    return _join(pieces), attributes[ordered].to(device)


def _join(pieces: Sequence[InputBatch]) -> InputBatch:
    named = [piece for piece in pieces if isinstance(piece, dict)]
    if named:
        return {name: torch.cat([piece[name] for piece in named]) for name in named[0]}
    return torch.cat([piece for piece in pieces if isinstance(piece, Tensor)])


def _attributes(examples: Examples) -> Tensor:
    assert examples.attributes is not None
    return examples.attributes


def _groups(examples: Examples) -> Tensor:
    """Class x attribute, int64 of shape (n,), whatever groups the set itself has."""
    return examples.labels * len(examples.attribute_names) + _attributes(examples)
