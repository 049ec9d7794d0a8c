"""From which ranges `holdfast sweep` draws hyperparameters: one place per method, as DomainBed's registry has it.

A method's first trial has its defaults (the published ones, where `holdfast.presets` has some), the others draw every
option that is named here, and the learning rate and the weight decay of the training. Options that are not named stay
at their defaults: they say what the method is, not how strongly it acts. Ranges hold the published settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from holdfast.streams import numpy_stream


@dataclass(frozen=True)
class Range:
    """Where a value is drawn from.

    Attributes:
        low: the smallest value.
        high: the largest.
        scale: `log` draws evenly in the logarithm.
        whole: round to whole numbers.
    """

    low: float
    high: float
    scale: Literal["log", "even"] = "even"
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> float | int:
        """A value; both ends can be drawn."""
        if self.scale == "log":
            value = float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        else:
            value = float(rng.uniform(self.low, self.high))
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(f"{value:.3g}")


@dataclass(frozen=True)
class Choice:
    """One of a few values.

    Attributes:
        values: the values, equally likely.
    """

    values: Sequence[Any]

    def draw(self, rng: np.random.Generator) -> Any:
        """One of them."""
        return self.values[int(rng.integers(len(self.values)))]


_FRACTION = Range(0.05, 0.5, "log")
_FIRST_STAGE = Range(1, 5, whole=True)
_DRO = {"eta_q": Range(1e-3, 0.1, "log"), "adjustment": Range(0.0, 5.0)}
_PRUNING = {"fraction": _FRACTION, "score_epochs": Range(2, 10, whole=True)}
_FILTER = {"filter_epochs": Range(5, 40, "log", whole=True), "expected": Range(0.005, 0.1, "log")}

#: Of the training of every method: factors on the learning rate that the data set's recipe or the user gives.
LEARNING_RATE_FACTOR = Range(0.1, 10.0, "log")
WEIGHT_DECAY = Range(1e-6, 1e-2, "log")

#: Options by method; a method without entry has nothing that is drawn but the training's own.
RANGES: Mapping[str, Mapping[str, Range | Choice]] = {
    "erm": {},
    "class-balanced": {},
    "group-balanced": {},
    "group-weighted": {},
    "group-subsampled": {},
    "group-dro": _DRO,
    "cvar": {"alpha": Range(0.05, 0.8, "log")},
    "jtt": {"infer_epoch": _FIRST_STAGE, "lambda_up": Range(3, 100, "log", whole=True)},
    "lff": {"q": Range(0.3, 0.9), "alpha": Range(0.3, 0.95)},
    "eiil": {"infer_epoch": _FIRST_STAGE, **_DRO},
    "pgi": {"infer_epoch": _FIRST_STAGE, "lam": Range(0.1, 10.0, "log")},
    "george": {"components": Range(1, 3, whole=True), **_DRO},
    "cnc": {"infer_epoch": _FIRST_STAGE, "tau": Range(0.03, 0.3, "log"), "weight": Range(0.3, 0.9)},
    "ssa": {"threshold": Range(0.8, 0.99), **_DRO},
    "dfr-train": {},
    "dfr-val": {},
    "pde": {
        "first_expansion": Range(3, 30, "log", whole=True),
        "every": Range(1, 10, whole=True),
        "added": Range(5, 50, "log", whole=True),
        "rate_decay": Range(0.01, 1.0, "log"),
    },
    "spare": {"infer_epoch": _FIRST_STAGE, "lambda_high": Range(1.0, 3.0), "output": Choice(("softmax", "features"))},
    "stratified": {},
    "crest": {"until_rate": Range(0.2, 0.8), "tolerance": Range(0.01, 0.1, "log")},
    "craig": {"fraction": _FRACTION},
    "gradmatch": {"fraction": _FRACTION, "ridge": Range(0.1, 1.0, "log")},
    "glister": {"fraction": _FRACTION},
    "el2n": _PRUNING,
    "grand": _PRUNING,
    "forgetting": _PRUNING,
    "ccs": {**_PRUNING, "cutoff": Range(0.0, 0.5)},
    "dynamic-pruning": {"ratio": Range(0.2, 0.7), "anneal": Range(0.0, 0.3)},
    "epic": {
        "fraction": Range(0.05, 0.3, "log"),
        "start": Range(2, 10, whole=True),
        "every": Range(1, 5, whole=True),
    },
    "deep-knn": _FILTER,
    "spectral-signatures": _FILTER,
    "activation-clustering": _FILTER,
    "dp-sgd": {"max_norm": Range(0.3, 10.0, "log"), "noise": Range(1e-3, 0.1, "log")},
    "adversarial-poisoning": {"share": Range(0.2, 0.8), "epsilon": Range(4 / 255, 16 / 255)},
    "highest-loss": {"threshold": Range(0.5, 3.0, "log"), "start": Range(2, 10, whole=True)},
    "lowest-confidence": {"threshold": Range(0.2, 0.7), "start": Range(2, 10, whole=True)},
}


@dataclass(frozen=True)
class Draw:
    """The hyperparameters of one trial; nothing for defaults.

    Attributes:
        options: of the method, by name.
        training: of the training, by name.
    """

    options: Mapping[str, Any]
    training: Mapping[str, Any]


def draw_trial(method: str, trial: int, learning_rate: float) -> Draw:
    """The hyperparameters of a method's trial: a pure function of both, so that a sweep can be made longer.

    Args:
        method: its name.
        trial: its number; the first, 0, has the defaults.
        learning_rate: of the recipe, which the drawn factor multiplies.

    Example:
        >>> draw_trial("jtt", 0, 0.01)
        Draw(options={}, training={})
        >>> draw_trial("jtt", 1, 0.01).options.keys()
        dict_keys(['infer_epoch', 'lambda_up'])
    """
    if trial == 0:
        return Draw({}, {})
    # The training's are drawn alike for all methods: none is luckier with its learning rates than another.
    shared = numpy_stream(trial, "sweep", "training")
    rate, decay = LEARNING_RATE_FACTOR.draw(shared), WEIGHT_DECAY.draw(shared)
    training = {"learning_rate": float(f"{learning_rate * rate:.3g}"), "weight_decay": decay}
    own = numpy_stream(trial, "sweep", method)
    return Draw({name: where.draw(own) for name, where in RANGES[method].items()}, training)
