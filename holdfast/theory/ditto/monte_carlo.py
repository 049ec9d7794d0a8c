"""Ditto's analysis by simulation: draw clients, solve each one's problem, measure the errors.

It shares no formula with `closed_form`: the global model is a mean of drawn estimates, a personal model is the
minimiser of its own quadratic, and errors are measured against drawn truths. θ cancels and is zero. A client's estimate
is drawn directly, as the truth plus noise of variance σ²/β, which is exactly how least squares on its samples is
distributed. All λ are measured on the same draws, so that the place of a minimum is known better than its height.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.errors import ConfigError
from holdfast.streams import numpy_stream
from holdfast.theory.ditto.closed_form import Vector
from holdfast.theory.ditto.setting import PointEstimation

_CHUNK = 10_000


@dataclass(frozen=True)
class Simulated:
    """What was measured, one number per λ.

    Attributes:
        error: squared error of a benign client, mean over clients and trials.
        error_se: its standard error, from the differences between trials.
        spread: variance of the squared error over the benign clients of a trial (divided by K_b), mean over trials.
        spread_se: its standard error.
        device_variance: variance over trials of one client's squared error, mean over benign clients.
    """

    error: Vector
    error_se: Vector
    spread: Vector
    spread_se: Vector
    device_variance: Vector


def simulate(setting: PointEstimation, lambdas: Sequence[float], trials: int, seed: int) -> Simulated:
    """Measure Ditto's errors at several λ on the same draws.

    Args:
        setting: the world to draw from.
        lambdas: each λ; 0 and infinity are allowed.
        trials: how many federations to draw.
        seed: of the draws. Settings of one shape have common random numbers under one seed.

    Returns:
        Means over the trials with their standard errors.
    """
    if trials < 2:
        raise ConfigError(f"there are {trials} trials; give at least 2, or no standard error is defined")
    stream = numpy_stream(seed, "ditto-theory")
    error = np.empty((len(lambdas), trials))
    spread = np.empty((len(lambdas), trials))
    device_square = np.zeros(len(lambdas))
    for start in range(0, trials, _CHUNK):
        here = slice(start, min(start + _CHUNK, trials))
        truth, local = _draw(setting, here.stop - start, stream)
        common = local.mean(axis=0)
        for place, lambda_ in enumerate(lambdas):
            personal = _minimisers(setting.curvature, local[setting.K_a :], common, lambda_)
            squared = ((personal - truth[setting.K_a :]) ** 2).sum(axis=-1)
            error[place, here] = squared.mean(axis=0)
            spread[place, here] = squared.var(axis=0)
            device_square[place] += (squared**2).sum()
    mean = error.mean(axis=1)
    root = np.sqrt(trials)
    return Simulated(
        error=mean,
        error_se=error.std(axis=1, ddof=1) / root,
        spread=spread.mean(axis=1),
        spread_se=spread.std(axis=1, ddof=1) / root,
        device_variance=device_square / (trials * setting.K_b) - mean**2,
    )


def _draw(setting: PointEstimation, trials: int, stream: np.random.Generator) -> tuple[Vector, Vector]:
    """True parameters and local estimates, (clients, trials, parameters); the malicious clients come first."""
    shape = (setting.K, trials, setting.d)
    scale = np.full((setting.K, 1, 1), setting.tau)
    if setting.tau_a is not None:
        scale[: setting.K_a] = setting.tau_a
    truth = scale * stream.standard_normal(shape)
    return truth, truth + np.sqrt(setting.noise) * stream.standard_normal(shape)


def _minimisers(curvature: float, local: Vector, common: Vector, lambda_: float) -> Vector:
    """The argmin of (c/2)‖v − ŵ_k‖² + (λ/2)‖v − w*‖² for every client."""
    if np.isinf(lambda_):
        return np.broadcast_to(common, local.shape)
    return (curvature * local + lambda_ * common) / (curvature + lambda_)
