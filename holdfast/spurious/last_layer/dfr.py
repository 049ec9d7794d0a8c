"""DFR (deep feature reweighting): train plainly, then refit the last layer on group-balanced subsets.

Kirichenko, Izmailov and Wilson, "Last Layer Re-Training is Sufficient for Robustness to Spurious Correlations" (2022,
https://arxiv.org/abs/2204.02937); a baseline of SPARE and PDE. Plainly trained features hold the core feature too, only
the last layer leans on the spurious one. So features are standardised by the training set's mean and deviation, an L1
logistic regression is fitted to several group-balanced redraws, and the mean of the coefficients becomes the head.
`DfrTrain` refits on training groups; `DfrVal` on the validation set, so validation group labels are trained on there.
The cost beyond plain training is a pass for the features and seconds of convex fitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from holdfast.data.examples import Examples
from holdfast.errors import ConfigError, DataError
from holdfast.models.heads import features_and_logits, find_head
from holdfast.spurious.last_layer.folds import folds
from holdfast.spurious.reweighting.balancing import balanced_subset
from holdfast.streams import derive_seed, torch_stream
from holdfast.training.evaluation.group_report import GroupReport
from holdfast.training.model_outputs import ModelOutputs, device_of, evaluating, to_device
from holdfast.training.plan import Plan
from holdfast.training.policy import Context, Uniform
from holdfast.training.post_training import PostTraining, Trained

#: The split whose examples the head is refitted on.
Part = Literal["train", "validation"]

_Floats = NDArray[np.float64]


class Standardisation(NamedTuple):
    """How features are standardised.

    Attributes:
        mean: what is subtracted, (features,).
        deviation: what the rest is divided by, (features,); 1 for a feature that never changes.
    """

    mean: _Floats
    deviation: _Floats

    @classmethod
    def of(cls, features: Tensor) -> Standardisation:
        """The scale on which `features`, (n, features), have mean 0 and deviation 1."""
        from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - takes a second, and few need it

        fitted = StandardScaler().fit(features.numpy())
        return cls(fitted.mean_, fitted.scale_)

    def apply(self, features: Tensor) -> _Floats:
        """The features on this scale, (n, features)."""
        return (features.numpy() - self.mean) / self.deviation


class Option(NamedTuple):
    """What a logistic regression is fitted with.

    Attributes:
        C: inverse strength of the penalty.
        class_weights: weight of each class's examples in the loss; as many as there are classes.
    """

    C: float
    class_weights: tuple[float, ...]


class LinearRule(NamedTuple):
    """Scores ``coef @ x + intercept`` of an input x.

    Attributes:
        coef: (rows, features): for two classes one row, the log-odds of class 1; for more a row per class.
        intercept: (rows,).
    """

    coef: _Floats
    intercept: _Floats

    def predict(self, features: _Floats) -> NDArray[np.int64]:
        """Class of each row of `features`, int64 of shape (n,)."""
        scores = features @ self.coef.T + self.intercept
        return np.asarray(scores[:, 0] > 0 if len(self.coef) == 1 else scores.argmax(1), np.int64)


def fit_l1(features: _Floats, labels: NDArray[np.int64], option: Option, seed: int) -> LinearRule:
    """L1 logistic regression by liblinear; with more than two classes, each against the rest.

    The released code leaves more than two classes to scikit-learn, whose liblinear has refused them since 1.8.

    Args:
        features: standardised, (n, features).
        labels: int64 of shape (n,); every class occurs.
        option: the penalty and the classes' weights.
        seed: of the order in which liblinear visits the coordinates.

    Returns:
        The fitted scores.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes a second, and few need it

    l1 = {"l1_ratio": 1} if LogisticRegression().penalty == "deprecated" else {"penalty": "l1"}
    regression = LogisticRegression(solver="liblinear", C=option.C, random_state=seed % 2**32, **l1)
    classes = len(option.class_weights)
    weights = np.asarray(option.class_weights, float)[labels]
    coef, intercept = [], []
    for positive in (1,) if classes == 2 else range(classes):
        regression.fit(features, labels == positive, sample_weight=weights)
        coef.append(regression.coef_[0])
        intercept.append(regression.intercept_[0])
    return LinearRule(np.array(coef), np.array(intercept))


def mean_rule(rules: Sequence[LinearRule]) -> LinearRule:
    """The rule whose coefficients are the means of those of `rules`."""
    return LinearRule(np.mean([rule.coef for rule in rules], 0), np.mean([rule.intercept for rule in rules], 0))


def write_head(layer: nn.Linear, rule: LinearRule, scale: Standardisation) -> None:
    """Make `layer` give the scores of `rule` for features that are not standardised, in place.

    Two classes get the logits (-z/2, z/2), whose softmax is the logistic regression's probability. With more, logits
    are the scores against the rest: the decisions are the regression's, the probabilities a softmax of its scores.

    Args:
        layer: the model's head, with a bias.
        rule: for standardised features.
        scale: how they were standardised.
    """
    weight = rule.coef / scale.deviation
    bias = rule.intercept - weight @ scale.mean
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))


def refittable_head(method: str, model: nn.Module, examples: Examples, head: str | None = None) -> nn.Linear:
    """The model's head, after checking that rewriting it rewrites the model's output.

    Args:
        method: who asks, for messages.
        model: the model.
        examples: a set that it takes; a few of them are tried.
        head: the head's name where it can't be found.

    Returns:
        The layer.

    Raises:
        ConfigError: if the head can't be told, has no bias or not an output per class, or isn't last.
    """
    name, layer = find_head(model, head)
    which = f"the head {name!r} of {type(model).__name__}"
    if layer.bias is None:
        raise ConfigError(f"{which} has no bias and {method} fits one; build the model with a bias in its last layer")
    if layer.out_features != examples.n_classes:
        raise ConfigError(
            f"{which} has {layer.out_features} outputs and the data {examples.n_classes} classes; "
            f"{method} fits one output per class, so give the model as many"
        )
    few = examples.inputs.gather(torch.arange(min(8, len(examples))))
    with evaluating(model):
        features_and_logits(model, to_device(few, device_of(model)), head=head, verify=True)
    return layer


@dataclass(frozen=True, eq=False)
class _Pool:
    """Examples with their features, (n, features), and how to standardise these."""

    examples: Examples
    features: Tensor
    scale: Standardisation

    @classmethod
    def of(cls, examples: Examples, trained: Trained, scale: Standardisation | None = None) -> _Pool:
        features = ModelOutputs(trained.model, examples, features=True, head=trained.head).features()
        return cls(examples, features, Standardisation.of(features) if scale is None else scale)

    def only(self, chosen: Tensor) -> _Pool:
        positions = chosen.nonzero().flatten()
        return replace(self, examples=self.examples.subset(positions), features=self.features[positions])

    def balanced(self, generator: torch.Generator) -> _Pool:
        return self.only(balanced_subset(self.examples.require_groups("dfr"), generator))

    def fit(self, option: Option, seed: int) -> LinearRule:
        return fit_l1(self.scale.apply(self.features), self.examples.labels.numpy(), option, seed)

    def worst_accuracy(self, rule: LinearRule) -> float:
        predicted = rule.predict(self.scale.apply(self.features))
        return GroupReport.of(predicted, self.examples, keep_outcomes=False).worst_accuracy


@dataclass(frozen=True)
class Refit(PostTraining):
    """Refit the head of a trained model on group-balanced redraws of one split.

    Attributes:
        method: names the random streams.
        part: the split that is redrawn from. On `validation`, what is fitted on one half of it is scored on the other
            to choose C; on `train`, all of validation scores.
        fits: how many redraws the coefficients are averaged over.
        C: inverse strengths of the penalty to choose from, the first of equals winning.
        class_weights: factors to weigh one class at a time up by, tried with every C.
    """

    method: str
    part: Part
    fits: int
    C: tuple[float, ...]
    class_weights: tuple[float, ...] = ()

    def __call__(self, trained: Trained) -> dict[str, Any]:
        """Choose C by worst-group accuracy, average the refits, and write them into the head.

        Returns:
            What was chosen, by which scores, and how many examples a redraw has.
        """
        layer = refittable_head(self.method, trained.model, trained.splits.train, trained.head)
        train = _Pool.of(trained.splits.train, trained)
        validation = _Pool.of(trained.splits.validation, trained, train.scale)
        if self.part == "train":
            refitted, tuned, judged = train, train, validation
        else:
            half = _halves(self.method, validation.examples, trained.seed)
            refitted, tuned, judged = validation, validation.only(half == 0), validation.only(half == 1)
        _check_classes(self.method, tuned.examples)
        drawn = tuned.balanced(torch_stream(trained.seed, self.method, "tune"))
        scores = {
            option: judged.worst_accuracy(drawn.fit(option, derive_seed(trained.seed, self.method, "tune")))
            for option in self._options(layer.out_features)
        }
        chosen = max(scores, key=scores.__getitem__)
        redraws = [
            refitted.balanced(torch_stream(trained.seed, self.method, "redraw", number)) for number in range(self.fits)
        ]
        rule = mean_rule(
            [
                redraw.fit(chosen, derive_seed(trained.seed, self.method, "redraw", number))
                for number, redraw in enumerate(redraws)
            ]
        )
        write_head(layer, rule, train.scale)
        return {
            "method": self.method,
            "refitted_on": self.part,
            **chosen._asdict(),
            "scores": [{**option._asdict(), "worst_accuracy": score} for option, score in scores.items()],
            "tuning_examples": len(drawn.examples),
            "redraw_examples": len(redraws[0].examples),
            "fits": self.fits,
            "nonzero_coefficients": int(np.count_nonzero(rule.coef)),
        }

    def _options(self, classes: int) -> list[Option]:
        even = (1.0,) * classes
        weights = [
            even,
            *((*even[:c], factor, *even[c + 1 :]) for c in range(classes) for factor in self.class_weights),
        ]
        return [Option(C, weight) for C in self.C for weight in weights]


def _halves(method: str, validation: Examples, seed: int) -> Tensor:
    """The half of each validation example: 0 is fitted on while tuning, 1 is judged on; int64 of shape (n,)."""
    return folds(validation.require_groups(method), 2, torch_stream(seed, method, "halves"))


def _check_classes(method: str, examples: Examples) -> None:
    if examples.n_classes < 2:
        raise DataError(f"{method} refits the head to tell classes apart and there is one; give data with two or more")
    missing = [examples.class_names[c] for c, count in enumerate(examples.class_counts().tolist()) if count == 0]
    if missing:
        raise DataError(
            f"{method} refits every class of the head and has no example of {', '.join(missing)} to do it with; "
            "give some, or leave the class out of the data set"
        )


@dataclass(frozen=True)
class _Dfr(Uniform):
    """Plain training whose head is refitted at the end.

    Attributes:
        fits: group-balanced redraws that the coefficients are averaged over.
        C: inverse strengths of the L1 penalty to choose from, by worst-group accuracy on validation data.
        class_weights: factors to weigh one class at a time up by, tried with every C; by default none, published 2 to
            1000.
    """

    part: ClassVar[Part]
    promises_worst_group = True

    fits: int = 10
    C: tuple[float, ...] = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
    class_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.fits < 1:
            raise ConfigError(f"fits of {self.name} is {self.fits}; give at least 1")
        for option in ("C", "class_weights"):
            if not all(value > 0 for value in getattr(self, option)):
                raise ConfigError(f"{option} of {self.name} is {getattr(self, option)}; give positive numbers")
        if not self.C:
            raise ConfigError(f"C of {self.name} is empty; give at least one number")

    def update(self, context: Context) -> Plan:
        """No opinion; but say before training what the refit would lack after it."""
        if context.model is not None:
            refittable_head(self.name, context.model, context.examples, context.head)
        return super().update(context)

    @property
    def needs_head(self) -> bool:
        """The head is refitted."""
        return True

    def post_training(self) -> Refit:
        """The refit."""
        return Refit(self.name, self.part, self.fits, self.C, self.class_weights)


@dataclass(frozen=True)
class DfrTrain(_Dfr):
    """Train plainly, then refit the last layer on group-balanced training data; needs training group labels.

    Attributes:
        fits: group-balanced redraws that the coefficients are averaged over.
        C: inverse strengths of the L1 penalty to choose from, by worst-group accuracy on the validation set.
        class_weights: factors to weigh one class at a time up by, tried with every C; by default none, published 2 to
            1000.
    """

    name: ClassVar[str] = "dfr-train"
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = "train"
    part: ClassVar[Part] = "train"

    def update(self, context: Context) -> Plan:
        """No opinion; the groups must be known, and every class must have examples to refit the head with."""
        context.require_groups()
        _check_classes(self.name, context.examples)
        return super().update(context)


@dataclass(frozen=True)
class DfrVal(_Dfr):
    """Train plainly, then refit the last layer on group-balanced validation data; trains on validation group labels.

    Attributes:
        fits: group-balanced redraws that the coefficients are averaged over.
        C: inverse strengths of the L1 penalty to choose from; fitted on one half of the validation set, scored by
            worst-group accuracy on the other.
        class_weights: factors to weigh one class at a time up by, tried with every C; by default none, published 2 to
            1000.
    """

    name: ClassVar[str] = "dfr-val"
    needs_groups_of: ClassVar[Literal["train", "validation"] | None] = "validation"
    part: ClassVar[Part] = "validation"

    fits: int = 20

    def update(self, context: Context) -> Plan:
        """No opinion; the validation set's groups must be known, and half of it must have every class."""
        if context.validation is not None:
            if context.validation.groups is None:
                raise DataError(
                    "dfr-val refits the last layer on groups of the validation set and it has none; "
                    "give it attributes or groups, or use dfr-train with --groups"
                )
            half = _halves(self.name, context.validation, context.seed)
            _check_classes(self.name, context.validation.subset((half == 0).nonzero().flatten()))
        return super().update(context)
