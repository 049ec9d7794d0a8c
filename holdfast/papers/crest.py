"""CREST (Yang, Kang and Mirzasoleiman, ICML 2023): its tables, and what they claim, under a budget of steps.

Table 2.1 trains with a tenth of the usual steps and compares the final accuracy with that of the full training. At the
``cpu`` scale the columns are Fashion-MNIST with a network of 24,000 parameters and group norm, 20 epochs in full, and
CIFAR-10 with the document's ResNet-20 and 5 epochs in full instead of 200; ``smoke`` is a short training on the
bundled digits. Of the numbers of Table 2.1 the document has only CREST's on CIFAR-10; those of Table 2.3 are complete.
Table 2.3 removes one part of CREST at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Printed, Scale, Verdict
from holdfast.papers.engine.results import CellResult, Metric, Results, beside

_TRAIN = "crest-train"

SMOKE: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": "mlp",
    "full_epochs": 20,
    "batch_size": 32,
    "learning_rate": 0.05,
    "weight_decay": 1e-4,
    "augment": False,
}
_FASHION = {
    "data": {"name": "fashion-mnist", "validation": 6000},
    "model": "pocket-cnn",
    "full_epochs": 20,
    "batch_size": 128,
    "learning_rate": 0.05,
    "weight_decay": 1e-4,
}
_CIFAR = {
    "data": {"name": "cifar10", "validation": 5000},
    "model": "resnet20",
    "full_epochs": 5,
    "batch_size": 128,
    "learning_rate": 0.1,
    "weight_decay": 1e-4,
}
POOLED = {**_CIFAR, "pool": 2, "model": "pocket-cnn", "full_epochs": 20, "learning_rate": 0.05}
POOLED_BATCH_NORM = {**POOLED, "model": "pocket-cnn-batchnorm", "learning_rate": 0.1}

#: Of the intervals that the document searches (1, 2, 4, 8, 10), the one that did best for its time in short runs here.
_TUNED = {"interval": 4}

#: As many backward passes as one probe on each of five mini-batches, and a curvature with less noise.
_EIGHT_PROBES = {"draws": 8, "modelled": 1}

#: What a row of Table 2.1 trains with.
_ROWS: Mapping[str, Mapping[str, Any]] = {
    "full": {"method": "erm", "budget": 1.0},
    "sgd, cut": {"method": "erm", "cut": True},
    "random": {"method": "erm"},
    "craig": {"method": "craig"},
    "gradmatch": {"method": "gradmatch"},
    "glister": {"method": "glister"},
    "crest": {"method": "crest", "options": _TUNED},
    "crest, 8 probes": {"method": "crest", "options": {**_TUNED, **_EIGHT_PROBES}},
    "every batch": {"method": "crest", "options": {"every_batch": True}},
}
BASELINES = ("random", "craig", "gradmatch", "glister", "sgd, cut")

#: These look at all examples again and again, which takes half as long as the full training, so one seed must do.
_CHOOSE_FROM_ALL = ("craig", "gradmatch", "glister")

_COLUMNS: Mapping[str, Mapping[str, Any]] = {"digits": SMOKE, "fashion": _FASHION, "cifar10": _CIFAR}


def budget_cell(column: str, row: str, settings: Mapping[str, Any], seeds: int | None = None) -> Cell:
    """A cell that trains on a tenth of the steps unless it says otherwise."""
    return Cell(f"{column}/{row}", _TRAIN, {"budget": 0.1, **settings}, most_seeds=seeds)


def _cells(scale: Scale) -> tuple[Cell, ...]:
    columns: Mapping[str, Mapping[str, Any]] = {
        "smoke": {"digits": SMOKE},
        "cpu": {"fashion": _FASHION, "cifar10": _CIFAR},
        "paper": {"cifar10-200": {**_CIFAR, "full_epochs": 200}},
    }[scale]
    return tuple(
        budget_cell(column, row, {**settings, **_options(settings, changes)}, _seeds(row))
        for column, settings in columns.items()
        for row, changes in _ROWS.items()
    )


def _options(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a row needs to know of its column.

    Glister imagines one step on the sum of all that it chose. At the rate of a mean over a mini-batch the step is
    thousands of times too long, and it chooses what is no good for anything (10 % on Fashion-MNIST); so its rate is
    that of a single example.

    A ResNet that has not taken a step is certain of the same class for every image, because its batch norm has seen
    none. All gradients of a class are alike then, CRAIG's first medoid stands for 95 % of it, and training on that one
    collapses (10.1 % on CIFAR-10); so those that choose from all start with an epoch on a random subset.
    """
    options = dict(changes.get("options", {}))
    if changes["method"] in _CHOOSE_FROM_ALL:
        options["start"] = 1
    if changes["method"] == "glister":
        options["step"] = settings["learning_rate"] / settings["batch_size"]
    return {**changes, "options": options} if options else changes


def _seeds(row: str) -> int | None:
    """One where a row costs most: training on everything, and choosing from everything."""
    return 1 if row in ("full", *_CHOOSE_FROM_ALL) else None


def against_full(cells: tuple[CellResult, ...]) -> tuple[CellResult, ...]:
    """Adds the relative error and the time as a share of the full training's, of the same column."""

    def compare(own: Mapping[str, Metric], full: Mapping[str, Metric]) -> dict[str, list[float]]:
        best, seconds = full["accuracy"].ours.mean, full["seconds"].ours.mean
        return {
            "error": [100 * abs(value - best) / best for value in own["accuracy"].ours.values],
            "time": [value / seconds for value in own["seconds"].ours.values],
        }

    return beside(cells, "full", compare)


def columns_of(results: Results) -> list[str]:
    """Names before the slash, in order."""
    return list(dict.fromkeys(name.partition("/")[0] for name in results.names))


def _listed(numbers: Mapping[str, float], digits: int = 1) -> str:
    return ", ".join(f"{name} {number:.{digits}f}" for name, number in numbers.items())


def _more_error(results: Results, column: str, row: str, other: str) -> float:
    """How much more relative error a row has than another, over the seeds that both have: they share their start."""
    ours, theirs = (results.values(f"{column}/{name}", "error") for name in (row, other))
    shared = min(len(ours), len(theirs))
    return (sum(ours[:shared]) - sum(theirs[:shared])) / shared


def _smallest_error(results: Results) -> Verdict:
    """The document: CREST has the smallest relative error in every column."""
    said, holds = [], True
    for column in columns_of(results):
        more = {row: _more_error(results, column, row, "crest") for row in BASELINES}
        holds &= min(more.values()) >= 0
        said.append(f"on {column} {_listed(more)}")
    return Verdict(holds, "points of relative error more than CREST " + "; ".join(said))


def _ahead_of_random(results: Results) -> Verdict:
    """In every seed, since both see the same start and schedule."""
    gains = {
        column: min(
            ours - theirs
            for ours, theirs in zip(
                results.values(f"{column}/crest", "accuracy"),
                results.values(f"{column}/random", "accuracy"),
                strict=True,
            )
        )
        for column in columns_of(results)
    }
    return Verdict(min(gains.values()) > 0, f"the smallest gain in points over seeds is {_listed(gains, 2)}")


def _coresets_fall_behind(results: Results) -> Verdict:
    """The document: up to 18.2 points more error than CREST, and more than Random."""
    behind = {
        f"{row} on {column}": _more_error(results, column, row, "random")
        for column in columns_of(results)
        for row in _CHOOSE_FROM_ALL
    }
    return Verdict(min(behind.values()) > 0, f"more relative error than Random: {_listed(behind)}")


def _cut_is_worst(results: Results) -> Verdict:
    """The full schedule stopped early never lowers its rate."""
    behind = {column: _more_error(results, column, "sgd, cut", "random") for column in columns_of(results)}
    return Verdict(min(behind.values()) > 0, f"more relative error than Random: {_listed(behind)}")


def _fewer_updates(results: Results) -> Verdict:
    """The document: 2 to 26 % of the updates that choosing before every batch makes; here a fifth at most."""
    shares = {
        column: results.mean(f"{column}/crest", "updates") / results.mean(f"{column}/every batch", "updates")
        for column in columns_of(results)
    }
    return Verdict(max(shares.values()) <= 0.2, f"share of every batch's updates: {_listed(shares, 3)} (at most 0.2)")


def _half_the_time(results: Results) -> Verdict:
    """The document: 1.7 to 2.5 times as fast as full training, everything included."""
    times = {column: results.mean(f"{column}/crest", "time") for column in columns_of(results)}
    return Verdict(max(times.values()) <= 0.5, f"share of full training's time: {_listed(times, 2)} (at most 0.5)")


TABLE_2_1 = Experiment(
    name="crest/table2.1",
    title="a tenth of the steps: accuracy lost, updates and time",
    source="CREST, Table 2.1 and Figures 2.2 and 2.3",
    cells=_cells,
    printed={"cifar10-200/crest": {"error": Printed(4.33), "updates": Printed(185)}},
    claims=(
        Claim("CREST loses the least accuracy", _smallest_error),
        Claim("CREST is more accurate than Random in every seed", _ahead_of_random),
        Claim("One big coreset per epoch is worse than Random", _coresets_fall_behind),
        Claim("The full schedule, cut, is worse than a shortened one", _cut_is_worst),
        Claim("CREST chooses at most a fifth as often as every batch", _fewer_updates),
        Claim("CREST takes at most half the time of full training", _half_the_time, ("cpu", "paper")),
    ),
    columns={
        "accuracy": "accuracy",
        "error": "relative error",
        "updates": "updates",
        "time": "time / full",
        "choosing": "seconds choosing",
    },
    digits=2,
    derive=against_full,
)

_ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "full": {"method": "erm", "budget": 1.0},
    "random": {"method": "erm"},
    "first order": {"method": "crest", "options": {**_TUNED, "order": 1}},
    "no smoothing": {"method": "crest", "options": {**_TUNED, "smooth": False}},
    "no dropping": {"method": "crest", "options": {**_TUNED, "drop_learned": False}},
    "reshuffled": {"method": "crest", "options": {**_TUNED, "reshuffle": True}},
    "8 probes": {"method": "crest", "options": {**_TUNED, **_EIGHT_PROBES}},
    "tolerance 0.02": {"method": "crest", "options": {**_TUNED, "tolerance": 0.02}},
    "crest": {"method": "crest", "options": _TUNED},
    "every batch": {"method": "crest", "options": {"every_batch": True}},
    "craig": {"method": "craig"},
}


def _ablation_cells(scale: Scale) -> tuple[Cell, ...]:
    column, settings = {
        "smoke": ("digits", SMOKE),
        "cpu": ("pooled", POOLED),
        "paper": ("cifar10-200", {**_CIFAR, "full_epochs": 200}),
    }[scale]
    rows = {row: _options(settings, changes) for row, changes in _ABLATIONS.items()}
    return tuple(
        budget_cell(column, row, {**settings, **_dropping(settings, changes)}, _seeds(row))
        for row, changes in rows.items()
    )


def _dropping(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """CREST's window as a tenth of the training, as with the 200 epochs of the document; its default outlasts these."""
    options = changes.get("options", {})
    if changes["method"] != "crest" or options.get("every_batch") or settings["full_epochs"] >= 200:
        return changes
    return {**changes, "options": {**options, "window": settings["full_epochs"] // 10}}


def _parts_save_updates(results: Results) -> Verdict:
    """The printed updates are 343 without curvature, 369 without smoothing, 185 with both."""
    (column,) = columns_of(results)
    updates = {row: results.mean(f"{column}/{row}", "updates") for row in ("crest", "first order", "no smoothing")}
    holds = min(updates["first order"], updates["no smoothing"]) >= 1.3 * updates["crest"]
    return Verdict(holds, f"updates: {_listed(updates, 0)} (1.3 times as many at least)")


def _parts_save_accuracy(results: Results) -> Verdict:
    """The printed errors are 7.45 and 7.44 without them, 4.33 with both."""
    (column,) = columns_of(results)
    errors = {row: results.mean(f"{column}/{row}", "error") for row in ("crest", "first order", "no smoothing")}
    holds = min(errors["first order"], errors["no smoothing"]) > errors["crest"]
    return Verdict(holds, f"relative error: {_listed(errors, 2)}")


def _dropping_costs_nothing(results: Results) -> Verdict:
    """The printed error is 4.33 with dropping and 4.61 without. Where nothing was dropped there is nothing to claim."""
    (column,) = columns_of(results)
    loss = results.mean(f"{column}/no dropping", "accuracy") - results.mean(f"{column}/crest", "accuracy")
    dropped = 100 - 100 * results.mean(f"{column}/crest", "pool")
    return Verdict(
        loss <= 0.3 and dropped > 0, f"{dropped:.2f} % are dropped, which costs {loss:.2f} points (at most 0.3)"
    )


def _fewer_later(results: Results) -> Verdict:
    """Figure 2.4: the intervals grow, so updates get rare."""
    (column,) = columns_of(results)
    quarters = {f"quarter {q}": results.mean(f"{column}/crest", f"updates {q}") for q in (1, 2, 3, 4)}
    return Verdict(quarters["quarter 4"] < quarters["quarter 1"], f"updates: {_listed(quarters, 0)}")


def _between_random_and_every_batch(results: Results) -> Verdict:
    """CREST approximates choosing before every batch, which should be 1.5 points above Random for that to pay."""
    (column,) = columns_of(results)
    accuracy = {row: results.mean(f"{column}/{row}", "accuracy") for row in ("random", "crest", "every batch")}
    holds = accuracy["random"] + 1.5 <= accuracy["every batch"]
    holds &= accuracy["random"] < accuracy["crest"] <= accuracy["every batch"] + 0.3
    return Verdict(holds, f"accuracy: {_listed(accuracy)}")


def _ahead_of_craig(results: Results) -> Verdict:
    """Mini-batch coresets that are renewed, against one big coreset per epoch."""
    (column,) = columns_of(results)
    more = _more_error(results, column, "craig", "crest")
    return Verdict(more > 0, f"CRAIG has {more:.1f} points more relative error, in the seed that both have")


def _tolerance_trades_updates(results: Results) -> Verdict:
    """At most a fifth of the steps choose at a tolerance of 0.05, and at most half at 0.02."""
    (column,) = columns_of(results)
    steps = results.mean(f"{column}/crest", "steps")
    shares = {row: results.mean(f"{column}/{row}", "updates") / steps for row in ("crest", "tolerance 0.02")}
    holds = shares["crest"] <= 0.2 and shares["crest"] < shares["tolerance 0.02"] <= 0.5
    return Verdict(holds, f"updates per step: {_listed(shares, 3)}")


def _intact_batches_matter(results: Results) -> Verdict:
    """Mini-batches cut anew out of all that was chosen stand for no subset."""
    (column,) = columns_of(results)
    gain = results.mean(f"{column}/crest", "accuracy") - results.mean(f"{column}/reshuffled", "accuracy")
    return Verdict(gain > 0, f"kept whole they gain {gain:.2f} points")


TABLE_2_3 = Experiment(
    name="crest/table2.3",
    title="CREST without one of its parts",
    source="CREST, Table 2.3 and Figure 2.4",
    cells=_ablation_cells,
    printed={
        "cifar10-200/first order": {"error": Printed(7.45), "updates": Printed(343)},
        "cifar10-200/no smoothing": {"error": Printed(7.44), "updates": Printed(369)},
        "cifar10-200/no dropping": {"error": Printed(4.61), "updates": Printed(346)},
        "cifar10-200/crest": {"error": Printed(4.33), "updates": Printed(185)},
    },
    claims=(
        Claim("Curvature and smoothing save updates", _parts_save_updates),
        Claim("Curvature and smoothing save accuracy", _parts_save_accuracy),
        Claim("Dropping what is learned costs nothing", _dropping_costs_nothing),
        Claim("Updates get rare as training goes on", _fewer_later),
        Claim("CREST is above Random and at most level with every batch", _between_random_and_every_batch, ("cpu",)),
        Claim("CREST is more accurate than CRAIG", _ahead_of_craig),
        Claim("A smaller tolerance takes more updates, within bounds", _tolerance_trades_updates, ("cpu",)),
        Claim("Mini-batches that are kept whole are better than reshuffled ones", _intact_batches_matter),
    ),
    columns=TABLE_2_1.columns,
    digits=2,
    derive=against_full,
)

EXPERIMENTS = (TABLE_2_1, TABLE_2_3)
