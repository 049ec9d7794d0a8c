"""health/beds: is a bad result told as one, is a good one let through, and does ``--method auto`` keep its promise?

Each bed (`holdfast.papers.health.beds`) is trained on by plain training, by the five methods that its known groups
allow, and by ``auto``. A method's difference to plain training in the worst test group is taken seed by seed; pairs of
a bed and a method whose 90 % interval excludes 0 decide. Three promises are judged, over the report beds only:

* of pairs that are worse by 2 points or more, at least .9 of the runs are failed or doubtful;
* of pairs that are better by 2 points or more, at least .7 of the runs are ok;
* ``auto`` is within 3 points of the best method of each bed in the mean, and on no bed 2 points worse than plain
  training, in the mean over seeds.

The first two are judged of three verdicts. The one that counts is what a run says by default: `holdfast fit` trains
plainly beside a method that guesses at groups, and a method that finishes a plain model is compared with that one.
Besides, what a run says with ``--reference none``, and what every run says with ``--reference beside``. Where nothing
is known of the attribute, the run does not know the test set's either, and sees classes only. Where it is known, the
comparison with plain training looks at the two test accuracies from which the pairs are made, so it must agree with
them nearly always; it says what a user gains who has both.

The names of the report beds, the thresholds of all checks and the rule of ``auto`` were committed before any report bed
was run, and the report beds were run once.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.auto.candidates import CANDIDATES
from holdfast.papers.engine.evidence import half_width, paired
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Scale, Verdict
from holdfast.papers.engine.results import Results
from holdfast.papers.health.beds import DEVELOPMENT, REPORT

#: Points from which a difference counts.
_MARGIN = 2.0
#: Points that ``auto`` may be behind the best method, in the mean over seeds and beds.
_BEHIND = 3.0

_TRAINING: dict[str, Any] = {"epochs": 10, "batch_size": 32, "weight_decay": 1e-4, "threads": 1}
#: Options of a method that its defaults don't allow in so few epochs: EPIC's first round would be after the last one.
_OPTIONS: Mapping[str, dict[str, Any]] = {"epic": {"start": 8}}
_AUTO: dict[str, Any] = {"effort": 4.0, "level": 0.8, "tries": []}


def bed_cells(beds: Sequence[str], training: Mapping[str, Any] | None = None) -> tuple[Cell, ...]:
    """Plain training, every method that the known groups allow, and auto, on each of the beds."""
    cells = []
    for name in beds:
        bed = {**REPORT, **DEVELOPMENT}[name]
        common: dict[str, Any] = {
            "bed": name,
            "model": bed.model,
            "training": {**_TRAINING, "learning_rate": bed.rate, **(training or {})},
        }
        for row in CANDIDATES[bed.known]:
            own = {"options": _OPTIONS[row]} if row in _OPTIONS else {}
            cells.append(Cell(f"{name}/{row}", "health-bed", {**common, "method": row, **own}))
        cells.append(Cell(f"{name}/auto", "health-bed", {**common, "method": "auto", "auto": _AUTO}))
    return tuple(cells)


def _cells(scale: Scale) -> tuple[Cell, ...]:
    return bed_cells(["digits-corner"], {"epochs": 4}) if scale == "smoke" else bed_cells(tuple(REPORT))


def gains(results: Results, cell: str) -> list[float]:
    """Points of a cell's worst group over plain training on the same bed, by seed."""
    plain = f"{cell.partition('/')[0]}/erm"
    return paired(results.by_seed(cell, "worst_group"), results.by_seed(plain, "worst_group"))


def decisive(results: Results, sign: int) -> dict[str, list[float]]:
    """The methods whose interval excludes 0 and that are better (1) or worse (-1) by the margin, with their gains."""
    found = {}
    for cell in results.names:
        if cell.rpartition("/")[2] in ("erm", "auto"):
            continue
        differences = gains(results, cell)
        mean = sign * statistics.fmean(differences)
        if mean >= _MARGIN and mean - half_width(differences) > 0:
            found[cell] = differences
    return found


def _share(results: Results, sign: int, at_least: float, which: str) -> Verdict:
    """The share of runs with the right verdict, among those of decisive pairs.

    Args:
        results: what was measured.
        sign: of the difference to plain training: 1 for better ones, which are to be ok.
        at_least: the share.
        which: verdict.
    """
    pairs = decisive(results, sign)
    if not pairs:
        return Verdict(None, f"no pair is {'better' if sign > 0 else 'worse'} by {_MARGIN:g} points beyond its noise")
    right, runs, parts = 0, 0, []
    for cell, differences in pairs.items():
        given = results.values(cell, which)
        good = sum((round(verdict) == 0) == (sign > 0) for verdict in given)
        right, runs = right + good, runs + len(given)
        parts.append(f"{cell} {statistics.fmean(differences):+.1f}: {good} of {len(given)}")
    what = "ok" if sign > 0 else "failed or doubtful"
    return Verdict(
        right / runs >= at_least,
        f"{right / runs:.2f} of {runs} runs of {len(pairs)} pairs are {what} (at least {at_least:g}): "
        + "; ".join(parts),
    )


def _auto_near_best(results: Results) -> Verdict:
    """How far auto is behind the best method of each bed, by means over seeds, and of that the mean over beds."""
    behind = {}
    for bed in results.columns:
        rows = [name for name in results.names if name.partition("/")[0] == bed and not name.endswith("/auto")]
        best = max(results.mean(name, "worst_group") for name in rows)
        behind[bed] = best - results.mean(f"{bed}/auto", "worst_group")
    mean = statistics.fmean(behind.values())
    parts = ", ".join(f"{bed} {points:.1f}" for bed, points in behind.items())
    return Verdict(mean <= _BEHIND, f"{mean:.1f} points behind in the mean (at most {_BEHIND:g}): {parts}")


def _auto_not_worse(results: Results) -> Verdict:
    """On every bed the mean gain of auto over plain training is above -2."""
    means = {bed: statistics.fmean(gains(results, f"{bed}/auto")) for bed in results.columns}
    parts = ", ".join(f"{bed} {gain:+.1f}" for bed, gain in means.items())
    return Verdict(min(means.values()) > -_MARGIN, f"auto less plain training: {parts} (above -{_MARGIN:g})")


def _golden() -> tuple[Cell, ...]:
    """A method and a choice on a development bed."""
    cells = bed_cells(["digits-corner"], {"epochs": 1})
    auto = cells[-1]
    tries = {**_AUTO, "tries": ["erm", "dfr-val"], "effort": 2.0}
    return (
        replace(cells[1], name="jtt beside plain training, on digits with a corner"),
        replace(auto, name="auto by halves, on digits with a corner", settings={**auto.settings, "auto": tries}),
    )


_CPU: tuple[Scale, ...] = ("cpu",)
_WORSE = "Of results that are worse than plain training by 2 points or more, at least .9 are failed or doubtful"
_BETTER = "Of results that are better than plain training by 2 points or more, at least .7 are ok"
_WAYS = {
    "verdict": "by default",
    "alone": "with --reference none",
    "beside": "with --reference beside for every method",
}


_UNSEEN = (
    "JTT, SPARE and EIIL lose 6 to 20 points where the groups that they guess separate well and are none that matter "
    "(fashion-blur, vietnam-clean), and CVaR what wrong labels cost: nothing in such a run differs from one that "
    "worked. What tells is plain training beside, which is why it is the default"
)
_BACKDOOR = (
    "53 of the 82 points lie on mnist-poisons, where LfF happens to unlearn the backdoor: nothing that auto is given "
    "shows the mark, so it keeps plain training. On fashion-blur it is 9 behind and on sentences-word 11: there DFR on "
    "validation groups is best, and with 41 examples in each rare group of the validation set its gain was not clear "
    "to auto in five and in one of five seeds. On the others it is at most 2.7 behind"
)


def _flags(which: str) -> Claim:
    name, why = f"{_WORSE}: {_WAYS[which]}", _UNSEEN if which == "alone" else ""
    return Claim(name, lambda results: _share(results, -1, 0.9, which), _CPU, ours=True, why=why)


def _passes(which: str) -> Claim:
    name = f"{_BETTER}: {_WAYS[which]}"
    return Claim(name, lambda results: _share(results, 1, 0.7, which), _CPU, ours=True)


_CLAIMS = (
    *(claim(which) for which in _WAYS for claim in (_flags, _passes)),
    Claim(
        "auto is within 3 points of the best method, in the mean over beds",
        _auto_near_best,
        _CPU,
        ours=True,
        why=_BACKDOOR,
    ),
    Claim("auto is on no bed 2 points worse than plain training", _auto_not_worse, _CPU, ours=True),
)
_COLUMNS = {"worst_group": "worst group", "average": "average", "verdict": "verdict", "alone": "without reference"}
_VERDICTS = "A verdict is 0 for ok, 1 for doubtful and 2 for failed, in the mean over seeds."
_ONCE = (
    "The names of the beds, every threshold and the rule of auto were committed before any of them was run, and they "
    "were run once. One thing was not thought of: EPIC's first round is after epoch 10 and these trainings have 10, so "
    "its three cells ended with an error in that run; they were run afterwards with a first round after epoch 8, and "
    "nothing else was changed. Ten earlier beds, now development beds, were run once with an earlier version of the "
    "checks, which had no plain training beside: .56 of losing runs were failed or doubtful and .69 of gaining ones ok "
    "(with --reference .88 and .68), and auto was 1.6 points behind the best and on one bed 2.3 below plain training."
)

BEDS = Experiment(
    name="health/beds",
    title="verdicts and automatic choice on beds that nothing was tuned on",
    source="ours: report beds, half of them on data that no document uses",
    cells=_cells,
    golden=_golden(),
    claims=_CLAIMS,
    columns=_COLUMNS,
    notes={"cpu": f"{_VERDICTS} {_ONCE}", "smoke": _VERDICTS},
    seeds=(0, 1, 2, 3, 4),
    scales=("smoke", "cpu"),
)

EXPERIMENTS = (BEDS,)
