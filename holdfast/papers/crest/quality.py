"""How good CREST's choices are: the gradients of what is trained on, and how far the model of the loss can be trusted.

``crest/gradients`` measures bias and variance (Figures 2.1, 9.1 and 9.4), and what picks and weights do for them.
``crest/model`` measures by how much models of the loss are off, step by step from where they were made: with the
curvature of Eq. 2.6 and without it, with the curvature of single draws instead of its average over time, and with
eight random probes per mini-batch instead of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.papers.crest import golden
from holdfast.papers.crest.tables import POOLED, POOLED_BATCH_NORM, SMOKE
from holdfast.papers.engine.evidence import above, beats, every
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results


def _gradient_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        settings = {**SMOKE, "budget": 0.1, "points": [10, 40], "subset": 128, "draws": 20}
        return (Cell("digits", "crest-gradients", settings),)
    shared = {"budget": 0.1, "points": [50, 300, 700], "subset": 500, "draws": 60}
    return (
        Cell("group norm", "crest-gradients", {**POOLED, **shared}),
        Cell("batch norm", "crest-gradients", {**POOLED_BATCH_NORM, **shared}),
    )


def _at_points(results: Results, name: str) -> dict[str, float]:
    """A metric at every point of every cell."""
    return {
        f"{cell.name} at {metric.partition('/')[0]}": value.ours.mean
        for cell in results.cells
        for metric, value in cell.metrics.items()
        if metric.partition("/")[2] == name
    }


def _relative_to(results: Results, left: str, right: str, most: float) -> Verdict:
    """At every point the mean of 60 draws of one kind relative to that of another; one seed."""
    numerators, denominators = _at_points(results, left), _at_points(results, right)
    quotients = {place: numerators[place] / denominators[place] for place in numerators}
    evidence = ", ".join(f"{value:.2f} ({place})" for place, value in quotients.items())
    return Verdict(max(quotients.values()) <= most, f"{evidence} (at most {most:.3g}, one seed)")


def _at_most(results: Results, name: str, most: float) -> Verdict:
    errors = _at_points(results, name)
    evidence = ", ".join(f"{value:.2f} ({place})" for place, value in errors.items())
    return Verdict(max(errors.values()) < most, f"{evidence} (below {most:g}, one seed)")


def _less_bias(results: Results) -> Verdict:
    """A bias is estimated by draws and has their noise, the floor: what two biases differ by less than is nothing."""
    ours, theirs = _at_points(results, "crest bias"), _at_points(results, "craig bias")
    floors = [_at_points(results, f"{kind} floor") for kind in ("crest", "craig")]
    verdicts = []
    for place in ours:
        noise = sum(floor[place] ** 2 for floor in floors) ** 0.5
        gap = theirs[place] - ours[place]
        evidence = f"CRAIG's {theirs[place]:.3f} minus {ours[place]:.3f} at a noise of {noise:.3f} ({place})"
        verdicts.append(Verdict(gap > 0, evidence) if abs(gap) > noise else Verdict(None, f"within it: {evidence}"))
    return every(verdicts)


#: What the table shows of all that is measured, relative to the whole gradient.
_SHOWN = {
    "random m variance": "variance: random m",
    "crest variance": "coreset",
    "random r variance": "random r",
    "crest bias": "bias of coreset",
    "epsilon greedy": "off its subset",
}

_LATE = (
    "At step 700, after the rate was cut, the whole gradient is small beside those of mini-batches: random ones of the "
    "subset's size are off it by 1.8 times its length."
)

GRADIENTS = Experiment(
    name="crest/gradients",
    title="bias and variance of the gradients that are trained on",
    source="CREST, Figures 2.1, 9.1 and 9.4",
    cells=_gradient_cells,
    golden=(golden.GRADIENTS,),
    claims=(
        Claim(
            "Coresets have less variance than random mini-batches of their size",
            lambda results: _relative_to(results, "crest variance", "random m variance", 1.0),
            ("cpu",),
        ),
        Claim(
            "Coresets have at most 0.65 of the variance of random mini-batches of their size",
            lambda results: _relative_to(results, "crest variance", "random m variance", 0.65),
            ("cpu",),
            ours=True,
        ),
        Claim(
            "Random mini-batches of the subset's size have less variance still",
            lambda results: _relative_to(results, "random r variance", "crest variance", 1.0),
            ("cpu",),
        ),
        Claim(
            "Coresets have less variance than mini-batches of one big coreset",
            lambda results: _relative_to(results, "crest variance", "craig variance", 1.0),
            ("cpu",),
        ),
        Claim("Coresets have less bias than mini-batches of one big coreset", _less_bias, ("cpu",)),
        Claim(
            "A coreset's gradient is off its subset's by less than the whole gradient",
            lambda results: _at_most(results, "epsilon greedy", 1.0),
            ("cpu",),
            why=_LATE,
        ),
        Claim(
            "A coreset's gradient is off by less than half of the whole gradient from its subset's",
            lambda results: _at_most(results, "epsilon greedy", 0.5),
            ("cpu",),
            ours=True,
            why=_LATE,
        ),
        Claim(
            "Its bias is less than a fifth of the whole gradient",
            lambda results: _at_most(results, "crest bias", 0.2),
            ("cpu",),
            ours=True,
            why=_LATE,
        ),
        Claim(
            "Five coresets together are nearer to the gradient than one",
            lambda results: _relative_to(results, "union error", "crest error", 1.0),
        ),
        Claim(
            "Unit weights put a coreset 1.5 times as far from its subset",
            lambda results: _relative_to(results, "epsilon greedy", "epsilon unit weights", 1 / 1.5),
            ("cpu",),
            ours=True,
        ),
        Claim(
            "Weights of others put it 1.5 times as far",
            lambda results: _relative_to(results, "epsilon greedy", "epsilon shuffled", 1 / 1.5),
            ours=True,
        ),
        Claim(
            "Random picks with the right weights put it 1.15 times as far",
            lambda results: _relative_to(results, "epsilon greedy", "epsilon random picks", 1 / 1.15),
            ours=True,
        ),
        Claim(
            "The most central examples with the right weights put it twice as far",
            lambda results: _relative_to(results, "epsilon greedy", "epsilon central", 1 / 2),
            ours=True,
        ),
    ),
    columns={
        f"{point}/{metric}": f"{heading}, step {point}" for metric, heading in _SHOWN.items() for point in (300, 700)
    },
    seeds=(0,),
    scales=("smoke", "cpu"),
    digits=3,
)


#: Steps from the point of choice at which the models are compared with the loss.
_AFTER: Mapping[Scale, Sequence[int]] = {"smoke": [1, 4], "cpu": [1, 2, 4, 8, 16, 24]}


def _model_cells(scale: Scale) -> tuple[Cell, ...]:
    shared = {"budget": 0.1, "subset": 500, "coresets": 5, "start": 100, "regions": 10, "after": _AFTER[scale]}
    if scale == "smoke":
        few = {**shared, "subset": 128, "coresets": 2, "start": 5, "regions": 2}
        return (Cell("digits", "crest-model", {**SMOKE, **few}),)
    return (
        Cell("group norm", "crest-model", {**POOLED, **shared}),
        Cell("batch norm", "crest-model", {**POOLED_BATCH_NORM, **shared}),
    )


def _off(results: Results, cell: str, model: str) -> str:
    errors = [results.mean(cell, f"{model} after {steps}") for steps in _AFTER[results.scale]]
    return "/".join(f"{error:.3f}" for error in errors)


def _good_at_first(results: Results) -> Verdict:
    """A step away the loss is as predicted; then it is less and less so."""
    last, verdicts = _AFTER[results.scale][-1], []
    for cell in results.names:
        near, far = (results.values(cell, f"quadratic after {steps}") for steps in (1, last))
        verdicts.append(above([0.03 - error for error in near], what=f"{cell}: 0.03 minus what it is off after a step"))
        pairs = zip(near, far, strict=True)
        verdicts.append(above([end - start for start, end in pairs], what=f"{cell}: what {last} steps add to it"))
    return every(verdicts)


def _better_than(other: str) -> Callable[[Results], Verdict]:
    """At every distance, by pairs of seeds."""

    def check(results: Results) -> Verdict:
        verdicts = []
        for cell in results.names:
            for steps in _AFTER[results.scale]:
                ours, theirs = ((cell, f"{model} after {steps}") for model in ("quadratic", other))
                verdicts.append(beats(results, theirs, ours, what=f"{cell} after {steps}"))
        means = "; ".join(
            f"{cell} {_off(results, cell, 'quadratic')} against {_off(results, cell, other)}" for cell in results.names
        )
        judged = every(verdicts)
        return Verdict(judged.holds, f"{other} off by more than quadratic: {judged.evidence}; means {means}")

    return check


_ONE_PROBE = (
    "Likely the noise of single probes, which the root of a mean square adds to the curvature: with eight it is off by "
    "0.05 instead of 0.16 after 24 steps, and still not better than without curvature on group norm."
)

MODEL = Experiment(
    name="crest/model",
    title="by how much of the loss its models are off",
    source="CREST, Eq. 2.6 to 2.10",
    cells=_model_cells,
    golden=(golden.MODEL,),
    claims=(
        Claim("The quadratic model is good after a step and gets worse", _good_at_first, ("cpu",), ours=True),
        Claim("It is better than one without curvature", _better_than("first order"), ("cpu",), why=_ONE_PROBE),
        Claim("It is better with averages over time", _better_than("signed"), ("cpu",), why=_ONE_PROBE),
    ),
    columns={
        f"{model} after {steps}": f"{model} after {steps}"
        for model in ("first order", "quadratic", "signed", "8 probes")
        for steps in (1, 8, 24)
    },
    scales=("smoke", "cpu"),
    digits=3,
)

#: What the gain of coresets over random mini-batches is made of, where training happens.
_TRAINING: Mapping[str, Mapping[str, object]] = {
    "group norm": POOLED,
    "batch norm, logit": POOLED_BATCH_NORM,
    "batch norm, last layer": {**POOLED_BATCH_NORM, "proxy": "last_layer"},
}


def _training_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "smoke":
        settings = {**SMOKE, "budget": 0.1, "points": [10], "subset": 128, "draws": 10, "statistics": "batch"}
        return (Cell("digits", "crest-gradients", {**settings, "proxy": "last_layer"}),)
    shared = {"budget": 0.1, "points": [300], "subset": 500, "draws": 30, "statistics": "batch"}
    return tuple(Cell(row, "crest-gradients", {**settings, **shared}) for row, settings in _TRAINING.items())


def _batch_norm_costs_variance(results: Results) -> Verdict:
    """Of the variance of random mini-batches, more is left under batch norm."""
    shares = {
        cell: results.mean(cell, "300/crest variance") / results.mean(cell, "300/random m variance")
        for cell in ("group norm", "batch norm, logit")
    }
    evidence = ", ".join(f"{share:.2f} ({cell})" for cell, share in shares.items())
    return Verdict(shares["batch norm, logit"] > shares["group norm"], f"{evidence} of random's variance, one seed")


def _last_layer_is_better(results: Results) -> Verdict:
    """The gradients of the last layer's weights against those of its outputs, as what stands for an example."""
    logit, last = (results.mean(f"batch norm, {proxy}", "300/crest variance") for proxy in ("logit", "last layer"))
    return Verdict(last < logit, f"variance {last:.3f} with the last layer's gradients, {logit:.3f} with the logits'")


TRAINING_MODE = Experiment(
    name="crest/training-mode",
    title="gradients of coresets with the statistics that training goes by",
    source="CREST, Figure 2.1, where batch norm normalises by the mini-batch itself",
    cells=_training_cells,
    golden=(golden.GRADIENTS,),
    claims=(
        Claim(
            "Batch norm leaves more of the variance of random mini-batches",
            _batch_norm_costs_variance,
            ("cpu",),
            ours=True,
        ),
        Claim(
            "Under batch norm last-layer gradients choose better than those of the logits",
            _last_layer_is_better,
            ("cpu",),
            ours=True,
        ),
    ),
    columns={f"300/{metric}": heading for metric, heading in _SHOWN.items()},
    seeds=(0,),
    scales=("smoke", "cpu"),
    digits=3,
)

EXPERIMENTS = (GRADIENTS, MODEL, TRAINING_MODE)
