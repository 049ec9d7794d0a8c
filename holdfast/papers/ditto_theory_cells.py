"""What the cells of Ditto's Figures 1 and 2 measure: point estimation by simulation, beside its closed forms.

Devices estimate related numbers from a few noisy samples. The settings are those of the authors' program, also that its
global model is λ = 1000 in Figure 2. Errors are in thousandths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from holdfast.federated.theory import Setting, best_lambda, error, simulate, spread
from holdfast.papers.engine.experiment import Cell, Scale
from holdfast.primitives.streams import derive_seed

TRIALS: dict[Scale, int] = {"smoke": 20_000, "cpu": 70_000, "paper": 70_000}

#: The two panels of Figure 1, and each λ that is measured besides 0 and infinity.
FIGURE_1 = {
    "clean": Setting(K=8, sigma=0.8, n=30, tau=0.1),
    "attacked": Setting(K=16, K_a=8, sigma=0.8, n=30, tau=0.1, tau_a=0.5),
}
LAMBDAS = tuple(10 ** (power / 4) for power in range(-8, 9))

#: The two panels of Figure 2 but for τ, and each 1/τ that is measured.
FIGURE_2: dict[str, dict[str, Any]] = {
    "clean": {"K": 20, "sigma": 1.0, "n": 20},
    "attacked": {"K": 10, "K_a": 3, "sigma": 0.5, "n": 10, "tau_a": 0.1},
}
RELATEDNESS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)
METHODS = ("local", "ditto", "global")

_GLOBAL = 1000.0


def at_lambda(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Measure one λ of Figure 1; every λ sees the same draws.

    Args:
        settings: ``setting`` (fields of `Setting`), ``lambda`` (a number or ``"inf"``) and ``trials``.
        seed: of the draws.

    Returns:
        In thousandths the squared ``error`` of a benign device, its ``spread`` over benign devices (root of the mean
        variance) and ``device_spread`` (one device's standard deviation over trials); closed forms of the first two,
        ``_closed``, and by how many standard errors the measurement is off, ``_off``.
    """
    setting, lambda_ = Setting(**settings["setting"]), float(settings["lambda"])
    found = simulate(setting, [lambda_], settings["trials"], seed)
    mean, variance = float(error(setting, lambda_)), float(spread(setting, lambda_))
    return {
        "error": 1000 * float(found.error[0]),
        "error_closed": 1000 * mean,
        "error_off": float((found.error[0] - mean) / found.error_se[0]),
        "spread": 1000 * math.sqrt(found.spread[0]),
        "spread_closed": 1000 * math.sqrt(variance),
        "spread_off": float((found.spread[0] - variance) / found.spread_se[0]),
        "device_spread": 1000 * math.sqrt(found.device_variance[0]),
    }


def at_relatedness(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Measure one relatedness of Figure 2 on draws of its own.

    Args:
        settings: ``setting`` (fields of `Setting`) and ``trials``.
        seed: of the draws.

    Returns:
        In thousandths the squared errors of a benign device with ``local`` models, ``ditto`` and a ``global`` model,
        their closed forms ``_closed``, and by how many standard errors the measurement is off, ``_off``.
    """
    setting = Setting(**settings["setting"])
    lambdas = lambdas_2(setting)
    found = simulate(setting, lambdas, settings["trials"], derive_seed(seed, "relatedness", repr(setting.tau)))
    closed = error(setting, lambdas)
    off = (found.error - closed) / found.error_se
    told = {"": 1000 * found.error, "_closed": 1000 * closed, "_off": off}
    return {f"{name}{what}": float(values[i]) for i, name in enumerate(METHODS) for what, values in told.items()}


def name_1(case: str, lambda_: float) -> str:
    """The cell of a λ."""
    return f"{case}/{lambda_:.3g}"


def name_2(case: str, relatedness: float) -> str:
    """The cell of a relatedness."""
    return f"{case}/{relatedness:g}"


def setting_2(case: str, relatedness: float) -> Setting:
    """A panel of Figure 2 at a relatedness."""
    return Setting(**FIGURE_2[case], tau=1 / relatedness)


def lambdas_2(setting: Setting) -> tuple[float, float, float]:
    """The λ of each of `METHODS`."""
    return 0.0, best_lambda(setting), _GLOBAL


def cells_1(scale: Scale) -> tuple[Cell, ...]:
    """The cells of Figure 1."""
    function, trials = "ditto-lambda", TRIALS[scale]
    return tuple(
        Cell(
            name_1(case, lambda_),
            function,
            {
                "setting": asdict(setting),
                "lambda": lambda_ if math.isfinite(lambda_) else "inf",
                "trials": trials,
            },
        )
        for case, setting in FIGURE_1.items()
        for lambda_ in (0.0, *LAMBDAS, math.inf)
    )


def cells_2(scale: Scale) -> tuple[Cell, ...]:
    """The cells of Figure 2."""
    function, trials = "ditto-relatedness", TRIALS[scale]
    return tuple(
        Cell(name_2(case, relatedness), function, {"setting": asdict(setting_2(case, relatedness)), "trials": trials})
        for case in FIGURE_2
        for relatedness in RELATEDNESS
    )
