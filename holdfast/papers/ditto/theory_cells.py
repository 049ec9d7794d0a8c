"""What the cells of Ditto's Figures 1 and 2 measure: point estimation by simulation, beside its closed forms.

Clients estimate related numbers from a few noisy samples. The settings are those of the authors' program, also that its
global model is λ = 1000 in Figure 2. Errors are in thousandths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from holdfast.papers.ditto.theory import METHODS
from holdfast.papers.engine.pins import pinned
from holdfast.papers.engine.witness import tell
from holdfast.streams import derive_seed
from holdfast.theory.ditto import PointEstimation, best_lambda, error, simulate, spread

_GLOBAL = 1000.0


def at_lambda(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Measure one λ of Figure 1; every λ sees the same draws.

    Args:
        settings: ``setting`` (fields of `PointEstimation`), ``lambda`` (a number or ``"inf"``) and ``trials``.
        seed: of the draws.

    Returns:
        In thousandths the squared ``error`` of a benign client, its ``spread`` over benign clients (root of the mean
        variance) and ``device_spread`` (one client's standard deviation over trials); closed forms of the first two,
        ``_closed``, and by how many standard errors the measurement is off, ``_off``.
    """
    setting, lambda_ = pinned(PointEstimation, **settings["setting"]), float(settings["lambda"])
    simulated = simulate(setting, [lambda_], settings["trials"], seed)
    mean, variance = float(error(setting, lambda_)), float(spread(setting, lambda_))
    measured = {
        "error": 1000 * float(simulated.error[0]),
        "error_closed": 1000 * mean,
        "error_off": float((simulated.error[0] - mean) / simulated.error_se[0]),
        "spread": 1000 * math.sqrt(simulated.spread[0]),
        "spread_closed": 1000 * math.sqrt(variance),
        "spread_off": float((simulated.spread[0] - variance) / simulated.spread_se[0]),
        "device_spread": 1000 * math.sqrt(simulated.device_variance[0]),
    }
    tell("measured", measured)
    return measured


def at_relatedness(settings: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Measure one relatedness of Figure 2 on draws of its own.

    Args:
        settings: ``setting`` (fields of `PointEstimation`) and ``trials``.
        seed: of the draws.

    Returns:
        In thousandths the squared errors of a benign client with ``local`` models, ``ditto`` and a ``global`` model,
        their closed forms ``_closed``, and by how many standard errors the measurement is off, ``_off``.
    """
    setting = pinned(PointEstimation, **settings["setting"])
    lambdas = lambdas_2(setting)
    simulated = simulate(setting, lambdas, settings["trials"], derive_seed(seed, "relatedness", repr(setting.tau)))
    closed = error(setting, lambdas)
    off = (simulated.error - closed) / simulated.error_se
    columns = {"": 1000 * simulated.error, "_closed": 1000 * closed, "_off": off}
    measured = {f"{name}{what}": float(values[i]) for i, name in enumerate(METHODS) for what, values in columns.items()}
    tell("measured", measured)
    return measured


def lambdas_2(setting: PointEstimation) -> tuple[float, float, float]:
    """The λ of each of `METHODS`."""
    return 0.0, best_lambda(setting), _GLOBAL
