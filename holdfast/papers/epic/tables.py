"""EPIC (Yang, Liu and Mirzasoleiman, ICML 2022): what attacks it stops, and what other defences make of the same.

The document attacks ResNet-18 on CIFAR-10 and trains for hundreds of GPU hours. At the ``cpu`` scale victims train a
new head on frozen features, where attacks work as they do there (86 % for Bullseye Polytope in Table 4.1): on rendered
shapes, and on 4,000 images of Fashion-MNIST. From scratch, networks this small are hardly ever fooled, see
`holdfast.papers.epic.scratch_and_watched`. ``paper`` is Table 4.2 in its own setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import fsum
from statistics import fmean
from typing import Any

from holdfast.papers.engine.evidence import above, beats, every, fewer
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Printed, Scale, Verdict
from holdfast.papers.engine.results import CellResult, Metric, Results, beside
from holdfast.papers.epic.claims import (
    by_pair,
    rarer,
    rate_at_least,
    rate_at_most,
    slower,
    stops_more,
    successes,
    trials_that_count,
)
from holdfast.primitives.proportions import Z95, wilson

#: How often an attack succeeds and what accuracy is left, in every table of trials.
SUCCESS = {
    "success": "success %",
    "fooled": "where it counts %",
    "trials": "trials that count",
    "from": "from",
    "to": "to",
    "accuracy": "accuracy",
}

DEFEND = "epic-defend"
_EXCHANGE = "epic-exchange"

SHAPES = {"name": "shapes", "examples": 2000, "poisons": 20}
SMALL = {"name": "shapes", "examples": 300, "poisons": 6, "epochs": 12}
_FASHION = {"name": "fashion-mnist", "examples": 4000, "poisons": 40}

#: EPIC in transfer learning: every epoch from the second to the tenth.
_TRANSFER = {"start": 1, "every": 1, "stop": 10}
_ATTACKS = ("bullseye", "gradient matching", "sleeper agent")


def epic_row(fraction: float, **options: Any) -> dict[str, Any]:
    """What a row with EPIC trains with in transfer learning."""
    return {"defence": "epic", "options": {**_TRANSFER, "fraction": fraction, **options}}


ROWS: Mapping[str, Mapping[str, Any]] = {
    "none": {"defence": "none"},
    "epic-0.1": epic_row(0.1),
    "epic-0.2": epic_row(0.2),
    "epic-0.3": epic_row(0.3),
    "epic-0.1, remaining": epic_row(0.1, pool="remaining"),
    "epic-0.2, remaining": epic_row(0.2, pool="remaining"),
    "epic-0.2, exponential": epic_row(0.2, metric="exponential"),
    "epic-0.2, last layer": epic_row(0.2, proxy="last-layer"),
    "random": {"defence": "as many as epic", "options": {**_TRANSFER, "fraction": 0.3, "by": "random"}},
    "highest loss": {"defence": "as many as epic", "options": {**_TRANSFER, "fraction": 0.3, "by": "loss"}},
    "lowest confidence": {"defence": "as many as epic", "options": {**_TRANSFER, "fraction": 0.3, "by": "confidence"}},
}


#: Beds of golden cells: seconds, on what needs no file.
TINY = {"name": "shapes", "examples": 100, "poisons": 4, "tests": 60, "epochs": 3, "learning": 2}
TINY |= {"steps": 3, "rate": 0.005}
_ROUNDS = {"start": 1, "every": 1, "fraction": 0.3}
_TRIED = {"controls": True, "defence": "epic", "options": _ROUNDS}


def trials(name: str, bed: Mapping[str, Any], *rows: Mapping[str, Any]) -> Cell:
    """A golden cell of several trials on one bed."""
    return Cell(f"golden/{name}", "epic-several", {"bed": dict(bed), "trials": [dict(row) for row in rows]})


_GOLDEN_ATTACKS = trials(
    "attacks",
    TINY,
    {"attack": "bullseye", "controls": True, "defence": "none"},
    {"attack": "gradient matching", **_TRIED},
    {"attack": "sleeper agent", **_TRIED, "options": {**_ROUNDS, "pool": "remaining"}},
)
_GOLDEN_CHOICES = trials(
    "choices",
    TINY,
    {"attack": "bullseye", "defence": "epic", "options": {**_ROUNDS, "metric": "exponential"}},
    {"attack": "bullseye", "defence": "epic", "options": {**_ROUNDS, "proxy": "last-layer"}},
    *(
        {"attack": "bullseye", "defence": "as many as epic", "options": {**_ROUNDS, "by": by}}
        for by in ("random", "loss", "confidence")
    ),
)


def beside_undefended(cells: tuple[CellResult, ...]) -> tuple[CellResult, ...]:
    """Adds the success rate with Wilson's interval, and the time as a multiple of the undefended training's.

    Where clean victims were trained as controls, only trials count in which both see the target rightly, the plain one
    and the defended one: a target that is lost without any poison is no attacker's success.
    """

    def compare(own: Mapping[str, Metric], plain: Mapping[str, Metric]) -> dict[str, list[float]]:
        seconds = plain["seconds"].ours.mean
        metrics = {"time": [value / seconds for value in own["seconds"].ours.values]}
        known = [
            value / 100
            for value, counts in zip(own["success"].ours.values, trials_that_count(own), strict=True)
            if counts
        ]
        if known:
            low, high = wilson(fsum(known), len(known), Z95)
            metrics |= {"fooled": [100 * fmean(known)], "from": [100 * low], "to": [100 * high]}
        return {**metrics, "trials": [float(len(known))]}

    return beside(cells, "none", compare)


def _transfer_cells(scale: Scale) -> tuple[Cell, ...]:
    ground = SHAPES if scale == "cpu" else SMALL
    return tuple(
        Cell(f"{attack}/{row}", DEFEND, {"bed": ground, "attack": attack, "controls": True, **settings})
        for attack in _ATTACKS
        for row, settings in ROWS.items()
    )


def _attacks_work(results: Results) -> Verdict:
    """The bed is worth defending: 80, 60 and 50 % undefended."""
    wanted = {"bullseye": 0.8, "gradient matching": 0.6, "sleeper agent": 0.5}
    return every([rate_at_least(results, f"{attack}/none", rate) for attack, rate in wanted.items()])


#: Which of EPIC's rows is looked at for each attack, and how many successes may be left.
_STOPPED = {("bullseye", "epic-0.3"): 0.2, ("gradient matching", "epic-0.2"): 0.15, ("sleeper agent", "epic-0.2"): 0.1}


def _attacks_are_stopped(results: Results) -> Verdict:
    """Table 4.1: 86 to 1 % and 40 to 0 % in transfer learning, 78.5 to 11.6 % of the backdoor."""
    return every([stops_more(results, f"{attack}/{row}", f"{attack}/none") for attack, row in _STOPPED])


def _little_is_left(results: Results) -> Verdict:
    """20 % of Bullseye Polytope at 0.3, 15 % of gradient matching at 0.2, 10 % of the backdoor at 0.2."""
    return every([rate_at_most(results, f"{attack}/{row}", rate) for (attack, row), rate in _STOPPED.items()])


def _accuracy_within(margin: float, results: Results) -> Verdict:
    """How much lower accuracy is with EPIC-0.3 than undefended, attack by attack."""
    return every(
        [beats(results, (f"{a}/epic-0.3", "accuracy"), (f"{a}/none", "accuracy"), -margin, digits=2) for a in _ATTACKS]
    )


def _selective(results: Results) -> Verdict:
    """Poisons are dropped several times as often as all examples; random dropping has no such preference."""
    least = {"bullseye": 3.0, "gradient matching": 2.0, "sleeper agent": 3.0}
    verdicts = [
        above(list(results.values(f"{attack}/{row}", "selectivity")), times, digits=1, what=f"{attack}/{row} times")
        for attack, times in least.items()
        for row in ("epic-0.1", "epic-0.2")
    ]
    verdicts += [
        above(
            [1.5 - times for times in results.values(f"{attack}/random", "selectivity")],
            digits=1,
            what=f"{attack}/random: 1.5 minus times",
        )
        for attack in least
    ]
    return every(verdicts)


def _more_medoids_stop_more(results: Results) -> Verdict:
    """Success is lower at 0.3 than at 0.1, and more is dropped at 0.3 than at 0.2 than at 0.1."""
    stopped = [stops_more(results, f"{attack}/epic-0.3", f"{attack}/epic-0.1") for attack in _ATTACKS]
    shares = [
        beats(results, (f"{attack}/epic-{more}", "dropped"), (f"{attack}/epic-{less}", "dropped"))
        for attack in _ATTACKS
        for less, more in ((0.1, 0.2), (0.2, 0.3))
    ]
    return every([*stopped, *shares])


def _better_than(rows: tuple[str, ...], results: Results) -> Verdict:
    """At the same number of dropped examples EPIC-0.3 leaves fewer successes."""
    return every([stops_more(results, f"{a}/epic-0.3", f"{a}/{row}") for a in _ATTACKS for row in rows])


def _alone_early(results: Results) -> Verdict:
    """Figures 4.4 and 4.5: the first round isolates poisons more often than clean examples of their class."""
    return every(
        [
            above(
                list(results.values(f"{attack}/epic-0.1", "first singletons")),
                1,
                digits=1,
                what=f"{attack}: times as often alone",
            )
            for attack in _ATTACKS
        ]
    )


TRANSFER = Experiment(
    name="epic/transfer",
    title="three attacks on frozen features of rendered shapes, with EPIC and with what it is compared with",
    source="EPIC, Table 4.1 and Figures 4.2 and 4.5, on a small bed",
    cells=_transfer_cells,
    golden=(_GOLDEN_ATTACKS, _GOLDEN_CHOICES),
    claims=(
        Claim("At least 80, 60 and 50 % of the targets are fooled undefended", _attacks_work, ("cpu",), ours=True),
        Claim("EPIC stops the attacks", _attacks_are_stopped, ("cpu",)),
        Claim("At most 20, 15 and 10 % are still fooled", _little_is_left, ("cpu",), ours=True),
        Claim(
            "It does not lower accuracy",
            partial(_accuracy_within, 0.0),
            ("cpu",),
            why="our data, it seems: a few tenths of a point are lost; of 2,000 images those that stand alone are "
            "needed, of the document's 50,000 they are not.",
        ),
        Claim("It costs 1.5 points of accuracy at most", partial(_accuracy_within, 1.5), ("cpu",), ours=True),
        Claim("It drops poisons 2 to 3 times as often as others", _selective, ("cpu",), ours=True),
        Claim("Poisons stand alone in the first round already, more often than others", _alone_early, ("cpu",)),
        Claim("More medoids stop more", _more_medoids_stop_more, ("cpu",)),
        Claim(
            "It stops more than dropping as many by loss or confidence",
            partial(_better_than, ("highest loss", "lowest confidence")),
            ("cpu",),
            why="our bed: in the gradients of a linear head what stands alone is what is badly fitted, so loss finds "
            "it as well; the document has this gap in full-size runs.",
        ),
        Claim("It stops more than dropping as many at random", partial(_better_than, ("random",)), ("cpu",), ours=True),
    ),
    notes={
        "cpu": "In the space of a linear head's gradients what stands alone is what is badly fitted, so dropping the "
        "highest losses stops as much as EPIC does: the document's gap between the two (Figure 4.2) does not show in "
        "this bed. Of the ten trials of the backdoor six count, since elsewhere clean victims miss most of the patched "
        "images."
    },
    columns={
        **SUCCESS,
        "clean accuracy": "on clean data",
        "dropped": "dropped",
        "poisons dropped": "poisons dropped",
        "defended right": "target right on clean data",
        "time": "time",
    },
    seeds=tuple(range(10)),
    scales=("smoke", "cpu"),
    digits=2,
    derive=beside_undefended,
)


def _exchange_cells(scale: Scale) -> tuple[Cell, ...]:
    ground = SHAPES if scale == "cpu" else SMALL
    settings = {"bed": ground, "attack": "gradient matching"}
    random = {**ROWS["random"], "options": {**ROWS["random"]["options"], "fraction": 0.2}}
    rows = {"epic-0.2": epic_row(0.2), "random": random}
    return tuple(Cell(f"gradient matching/{row}", _EXCHANGE, {**settings, **own}) for row, own in rows.items())


def _exchanged(row: str, pairs: tuple[tuple[str, str], ...], results: Results) -> Verdict:
    """Whether fewer trials succeed with some poisons than with others, for every pair of those."""
    cell, verdicts = f"gradient matching/{row}", []
    for less, more in pairs:
        ours, theirs = (list(results.by_seed(cell, name).values()) for name in (less, more))
        verdict = fewer([value / 100 for value in ours], [value / 100 for value in theirs])
        verdicts.append(Verdict(verdict.holds, f"{less}, {more}: {verdict.evidence}"))
    return every(verdicts)


EXCHANGE = Experiment(
    name="epic/effective",
    title="are the poisons that EPIC drops the ones that work? Training with them alone, and without them alone",
    source="EPIC, Figure 4.1 and section 4.2, on a small bed",
    cells=_exchange_cells,
    golden=(
        Cell("golden/exchange", _EXCHANGE, {"bed": TINY, "attack": "gradient matching", **_TRIED, "controls": False}),
    ),
    claims=(
        Claim(
            "Without the poisons that EPIC drops the attack fails, and with them alone it succeeds more than without",
            partial(_exchanged, "epic-0.2", (("all but Z", "all"), ("only R", "all"), ("only R", "only Z"))),
            ("cpu",),
        ),
        Claim(
            "As many others can be left out with less effect",
            partial(_exchanged, "epic-0.2", (("all but Z", "all but random"),)),
            ("cpu",),
            ours=True,
        ),
        Claim(
            "Poisons dropped at random are not the ones that work",
            partial(_exchanged, "random", (("only Z", "all"),)),
            ("cpu",),
            ours=True,
        ),
    ),
    columns={name: name for name in ("all", "only Z", "only R", "all but Z", "all but random", "Z")},
    seeds=tuple(range(8)),
    scales=("smoke", "cpu"),
)

#: The trade-off of Table 4.2: what more medoids stop, and what they cost; then the printed algorithm, whose medoids are
#: those of what remains, and which drops more.
_CURVE: Mapping[str, Mapping[str, Any]] = {
    **{f"epic-{fraction}": epic_row(fraction) for fraction in (0.1, 0.2, 0.3, 0.4, 0.5)},
    **{f"epic-{fraction}, remaining": epic_row(fraction, pool="remaining") for fraction in (0.1, 0.2, 0.3)},
}
_FILTER = {"filter_epochs": 20, "expected": 0.01}
_COMPARED: Mapping[str, Mapping[str, Any]] = {
    "none": {"defence": "none"},
    "deep-knn": {"defence": "deep-knn", "options": _FILTER},
    "spectral": {"defence": "spectral", "options": _FILTER},
    "activation": {"defence": "activation", "options": _FILTER},
    "dp-sgd": {"defence": "dp-sgd"},
    **_CURVE,
}
_AP = {"defence": "adversarial poisoning", "options": {"share": 0.5}}


#: Warm-up by fraction, rounds and their end at 40 and 200 epochs.
_SCHEDULES = {"cifar10-40": {"every": 2, "stop": 35}, "cifar10-200": {"every": 10, "stop": 150}}
_WARM_UPS = {0.1: 10, 0.2: 20, 0.3: 30}


def printed_rows(ground: str) -> dict[str, Mapping[str, Any]]:
    """The rows of Table 4.2 in its own setting."""
    expected = {"expected": 0.01, "filter_epochs": int(ground.partition("-")[2])}
    filters = {name: {"defence": name, "options": expected} for name in ("deep-knn", "spectral", "activation")}
    shares = {f"ap-{p}": {"defence": "adversarial poisoning", "options": {"share": p}} for p in (0.25, 0.5, 0.75)}
    epics = {
        f"epic-{fraction}": {"defence": "epic", "options": {"fraction": fraction, "start": start, **_SCHEDULES[ground]}}
        for fraction, start in _WARM_UPS.items()
    }
    return {"none": ROWS["none"], **filters, "dp-sgd": {"defence": "dp-sgd"}, **shares, **epics}


def _compared_cells(scale: Scale) -> tuple[Cell, ...]:
    if scale == "paper":
        return tuple(
            Cell(
                f"gradient-matching-{ground.partition('-')[2]}/{row}",
                DEFEND,
                {"bed": {"name": ground}, "attack": "gradient matching", **own},
            )
            for ground in _SCHEDULES
            for row, own in printed_rows(ground).items()
        )
    settings = {"bed": _FASHION if scale == "cpu" else SMALL, "attack": "bullseye"}
    cells = [Cell(f"bullseye/{row}", DEFEND, {**settings, "controls": True, **own}) for row, own in _COMPARED.items()]
    return (*cells, Cell("bullseye/ap-0.5", DEFEND, {**settings, **_AP}, most_seeds=2))


def _half_are_fooled(results: Results) -> Verdict:
    """Without a defence at least half of the targets are taken for the adversarial class."""
    return rate_at_least(results, "bullseye/none", 0.5)


def _one_of_ten(results: Results) -> Verdict:
    """The goal: at most a tenth, for at most 6 points and 1.3 times the time, in any setting."""
    verdicts = {}
    for row in _CURVE:
        cell = f"bullseye/{row}"
        lost = [-value for value in by_pair(results, cell, "accuracy", "bullseye/none").values()]
        left = rate_at_most(results, cell, 0.1)
        within = [
            above([6 - value for value in lost], digits=1, what="6 minus points lost"),
            slower(results, cell, "bullseye/none", 1.3, -1),
        ]
        verdicts[row] = every([left, *within])
    for holds in (True, None):
        deciding = [verdict.evidence for verdict in verdicts.values() if verdict.holds is holds]
        if deciding:
            return Verdict(holds, "; ".join(deciding))
    return Verdict(False, "; ".join(verdict.evidence for verdict in verdicts.values()))


def _stops_it(results: Results) -> Verdict:
    """Table 4.2: from 25 to 1 % at 40 epochs, from 45 to 0.7 % at 200."""
    return every([stops_more(results, f"{column}/epic-0.3", f"{column}/none") for column in results.columns])


def _falls_with_medoids(results: Results) -> Verdict:
    """Table 4.2: success falls and accuracy falls from EPIC-0.1 to EPIC-0.3."""
    verdicts = []
    for column in results.columns:
        less, middle, more = (f"{column}/epic-{fraction}" for fraction in (0.1, 0.2, 0.3))
        verdicts.append(stops_more(results, more, less))
        verdicts += [
            beats(results, (one, "accuracy"), (two, "accuracy"), digits=2)
            for one, two in ((less, middle), (middle, more))
        ]
    return every(verdicts)


_FILTERS = ("deep-knn", "spectral", "activation")


def _ahead_of_filters(results: Results) -> Verdict:
    """Table 4.2: filters leave 9 to 21 % at 40 epochs, EPIC-0.3 leaves 1 %."""
    return every([stops_more(results, f"{c}/epic-0.3", f"{c}/{row}") for c in results.columns for row in _FILTERS])


def _keeps_more_than_dp(results: Results) -> Verdict:
    """Table 4.2: DP-SGD has 70.34 % accuracy where EPIC-0.3 has 87.03 %."""
    return every(
        [
            beats(results, (f"{column}/epic-0.3", "accuracy"), (f"{column}/dp-sgd", "accuracy"), digits=2)
            for column in results.columns
        ]
    )


def _faster_than_ap(results: Results) -> Verdict:
    """Section 4.3.2: adversarial poisoning needs 6 times the training time."""
    return every([slower(results, f"{column}/ap-0.5", f"{column}/epic-0.3", 6) for column in results.columns])


#: Times of Table 4.2 at 40 epochs over that without a defence.
_PRINTED_TIMES = {"epic-0.1": 22 / 15, "epic-0.2": 19 / 15, "epic-0.3": 17 / 15}


def _hardly_slower(results: Results) -> Verdict:
    """Table 4.2: 1.47, 1.27 and 1.13 times as long as no defence; not longer here."""
    return every(
        [
            slower(results, f"{column}/{row}", f"{column}/none", times, -1)
            for column in results.columns
            for row, times in _PRINTED_TIMES.items()
        ]
    )


def _best_trade_off(results: Results) -> Verdict:
    """Section 4.3.2: no other defence both leaves fewer successes and keeps more accuracy than EPIC-0.3."""
    verdicts = []
    for column in results.columns:
        ours = f"{column}/epic-0.3"
        for row in (*_FILTERS, "dp-sgd", "ap-0.5"):
            both = every(
                [
                    stops_more(results, f"{column}/{row}", ours),
                    beats(results, (f"{column}/{row}", "accuracy"), (ours, "accuracy"), digits=2),
                ]
            )
            verdicts.append(Verdict(None if both.holds is None else not both.holds, both.evidence))
    return every(verdicts)


def _longer_is_worse(results: Results) -> Verdict:
    """Table 4.2: 25 % at 40 epochs, 45 % at 200."""
    return stops_more(results, "gradient-matching-40/none", "gradient-matching-200/none")


#: Fashion-MNIST's T-shirt, pullover, dress, coat and shirt, which are taken for each other.
_ALIKE = (0, 2, 3, 4, 6)
#: The class that the attacker of each trial wants: the first draw of the trial's stream, see `epic_cells`.
WANTED = (9, 9, 7, 8, 3, 9, 9, 8, 1, 7, 2, 2, 4, 6, 2, 3, 8, 6, 2, 1)


def _odd_ones_are_found(results: Results) -> Verdict:
    """Not the document's: found when our rates were higher than its, and why EPIC-0.3 falls short here."""
    fooled = successes(results, "bullseye/epic-0.3")
    apart, alike = ([won for seed, won in fooled.items() if (WANTED[seed] in _ALIKE) is near] for near in (False, True))
    return rarer(apart, alike, "fooled in classes that stand apart against those that look alike")


_GOLDEN_DEFENCES = trials(
    "defences",
    {"name": "digits", "examples": 120, "poisons": 4, "elsewhere": 200, "tests": 60, "learning": 2, "epochs": 2}
    | {"steps": 3},
    *(
        {"attack": "bullseye", "defence": name, "options": {"filter_epochs": 1, "expected": 0.02}}
        for name in ("deep-knn", "spectral", "activation")
    ),
    {"attack": "bullseye", "defence": "dp-sgd"},
    {"attack": "bullseye", "defence": "adversarial poisoning", "options": {"share": 0.5}},
)
_GOLDEN_SCRATCH = Cell(
    "golden/from-scratch",
    DEFEND,
    {"bed": {"name": "digits-scratch", "poisons": 4, "restarts": 2, "steps": 2}, "attack": "gradient matching"}
    | {"defence": "epic", "options": {**_ROUNDS, "fraction": 0.1}},
)

_MEASURED: tuple[Scale, ...] = ("cpu", "paper")

TABLE_4_2 = Experiment(
    name="epic/table4.2",
    title="defences against poisons: success, accuracy, time",
    source="EPIC, Table 4.2",
    cells=_compared_cells,
    golden=(_GOLDEN_DEFENCES, _GOLDEN_SCRATCH),
    printed={
        "gradient-matching-40/none": {"success": Printed(25), "accuracy": Printed(92.48)},
        "gradient-matching-40/deep-knn": {"success": Printed(21), "accuracy": Printed(91.86)},
        "gradient-matching-40/spectral": {"success": Printed(17), "accuracy": Printed(90.13)},
        "gradient-matching-40/activation": {"success": Printed(9), "accuracy": Printed(84.20)},
        "gradient-matching-40/dp-sgd": {"success": Printed(2), "accuracy": Printed(70.34)},
        "gradient-matching-40/ap-0.25": {"success": Printed(4), "accuracy": Printed(91.48)},
        "gradient-matching-40/ap-0.5": {"success": Printed(1), "accuracy": Printed(90.67)},
        "gradient-matching-40/ap-0.75": {"success": Printed(0), "accuracy": Printed(87.97)},
        "gradient-matching-40/epic-0.1": {"success": Printed(2.7, 0.6), "accuracy": Printed(90.92, 0.26)},
        "gradient-matching-40/epic-0.2": {"success": Printed(1.3, 0.6), "accuracy": Printed(88.95, 0.08)},
        "gradient-matching-40/epic-0.3": {"success": Printed(1.0, 0.0), "accuracy": Printed(87.03, 0.11)},
        "gradient-matching-200/none": {"success": Printed(45), "accuracy": Printed(94.95)},
        "gradient-matching-200/spectral": {"success": Printed(10), "accuracy": Printed(92.99)},
        "gradient-matching-200/activation": {"success": Printed(11), "accuracy": Printed(90.88)},
        "gradient-matching-200/dp-sgd": {"success": Printed(2), "accuracy": Printed(80.71)},
        "gradient-matching-200/epic-0.1": {"success": Printed(2.3, 0.6), "accuracy": Printed(92.50, 0.03)},
        "gradient-matching-200/epic-0.2": {"success": Printed(1.0, 1.0), "accuracy": Printed(89.71, 0.06)},
        "gradient-matching-200/epic-0.3": {"success": Printed(0.7, 0.6), "accuracy": Printed(87.05, 0.05)},
    },
    claims=(
        Claim("Half of the targets are fooled without a defence", _half_are_fooled, ("cpu",), ours=True),
        Claim("EPIC stops the attack", _stops_it, _MEASURED),
        Claim(
            "EPIC brings it to a tenth, for 6 points and 1.3 times the time at most", _one_of_ten, ("cpu",), ours=True
        ),
        Claim("More medoids stop more and cost more accuracy", _falls_with_medoids, _MEASURED),
        Claim("EPIC stops more than the filters", _ahead_of_filters, _MEASURED),
        Claim(
            "EPIC keeps more accuracy than DP-SGD",
            _keeps_more_than_dp,
            _MEASURED,
            why="our bed: the noise that costs a network from scratch 22 points hardly moves a linear head on frozen "
            "features, and there it doesn't stop the attack either.",
        ),
        Claim("Adversarial poisoning takes 6 times as long as EPIC", _faster_than_ap, _MEASURED),
        Claim("EPIC takes hardly longer than no defence", _hardly_slower, _MEASURED),
        Claim("No other defence both stops more and keeps more accuracy", _best_trade_off, _MEASURED),
        Claim("Longer training raises the success of the attack", _longer_is_worse, ("paper",)),
        Claim(
            "EPIC-0.3 stops it in classes that stand apart, not in those that look alike",
            _odd_ones_are_found,
            ("cpu",),
            ours=True,
        ),
    ),
    notes={
        "cpu": "Deep-kNN leaves no success on this bed, where it leaves 21 % in the document: poisons of Bullseye "
        "Polytope sit around the target in the frozen features that it looks at, while gradient matching from scratch "
        "leaves features where they are. Adversarial poisoning ran under two seeds, since it takes 38 times as long."
    },
    columns={
        **SUCCESS,
        "time": "time",
        "poisons dropped": "poisons dropped",
    },
    seeds=tuple(range(20)),
    derive=beside_undefended,
    figure="holdfast.papers.epic.figures:draw_trade_off",
    digits=2,
)

EXPERIMENTS = (TRANSFER, EXCHANGE, TABLE_4_2)
