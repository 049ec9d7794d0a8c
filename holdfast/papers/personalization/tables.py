"""Personalized FL with spurious features: Tables 2 and 3.

On two cores: the 10,000 digits of MNIST's test files painted in two colours, 20 clients of five classes, a network of
the same topology with 8 and 16 filters, 60 rounds; ten clients are personalized for five epochs. The document's
setting, with its 25.9 million parameters, is the `paper` scale. Tables show the checkpoint that each client selects by
its validation data, as the document does (Section 6.2, Appendix D.2). The document's method is the row ``ours``, with
the coefficients tuned by its rule; see `holdfast.papers.personalization.claims`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Grid, Printed, Scale
from holdfast.papers.personalization import claims

_FUNCTION = "personalization"
#: Rows with the method behind each.
METHODS: Mapping[str, Mapping[str, Any]] = {
    "ft": {"name": "ft"},
    "ditto": {"name": "near"},
    "ditto-squared": {"name": "near", "options": {"lambda_": 1.0, "form": "half-squared"}},
    "uw": {"name": "uw", "counterexamples": 0.02},
    "jtt": {"name": "jtt"},
    "jtt-injected": {"name": "jtt", "counterexamples": 0.02},
    "ours": {"name": "transferability"},
    "ours-1-1": {"name": "transferability", "options": {"adversarial": 1.0, "weights": 1.0}},
    "ours-1-0.1": {"name": "transferability", "options": {"adversarial": 1.0, "weights": 0.1}},
    "adversarial-only": {"name": "transferability", "options": {"adversarial": 1.0, "weights": 0.0}},
    "weights-only": {"name": "transferability", "options": {"adversarial": 0.0, "weights": 1.0}},
    "benign": {"name": "transferability", "options": {"adversarial": 1.0, "weights": 0.0, "on": "benign"}},
    "flipped": {"name": "flipped-label"},
    "adversarial-tuned": {"name": "transferability", "options": {"weights": 0.0}},
    "weights-tuned": {"name": "transferability", "options": {"adversarial": 0.0}},
    "benign-tuned": {"name": "transferability", "options": {"weights": 0.0, "on": "benign"}},
}
#: Rows of the ablation, each with its coefficient tuned by the method's own rule: a cell of their own.
ABLATION = ("adversarial-tuned", "weights-tuned", "benign-tuned")
ROWS = {
    "global": "Global",
    "ft": "FT",
    "ditto": "Ditto, as a distance",
    "ditto-squared": "Ditto, half its square, λ=1",
    "uw": "UW",
    "jtt": "JTT",
    "jtt-injected": "JTT, 2 % counterexamples",
    "ours": "ours, coefficients tuned by D.2",
    "ours-1-1": "ours, (1, 1)",
    "ours-1-0.1": "ours, (1, 0.1)",
    "adversarial-only": "predictions only, (1, 0)",
    "weights-only": "weights only, (0, 1)",
    "benign": "benign predictions, (1, 0)",
    "flipped": "flipped labels",
}
_COLUMNS = {"mnist": "MNIST", "coil20": "Coil20", "celeba": "CelebA", "bar": "BAR", "mnist-small": "MNIST, small"}

_ADAM = {"optimizer": "adam", "sampling": "uniform", "cohort": 5, "evaluate_every": 0, "executor": "serial"}


def small_setting(scale: Scale) -> dict[str, Any]:
    """The federation on two cores; at the smoke scale a few rounds on digits that need no download."""
    smoke = scale == "smoke"
    digits = {"name": "painted-digits", "clients": 4}
    return {
        "data": digits if smoke else {"name": "painted-mnist", "source": "t10k", "clients": 20},
        "model": "cnn-28-small",
        "rounds": {
            **_ADAM,
            "cohort": 4 if smoke else 5,
            "rounds": 3 if smoke else 60,
            "local_epochs": 2,
            "batch_size": 32,
            "learning_rate": 1e-3,
        },
        "clients": 2 if smoke else 10,
    }


def paper_setting(name: str) -> dict[str, Any]:
    """The document's federation on one of its data sets."""
    data = {"mnist": "painted-mnist", "coil20": "painted-coil20", "celeba": "celeba-blond", "bar": "bar"}[name]
    rates = {"mnist": (1e-4, 63), "coil20": (2e-4, 7), "celeba": (1e-4, 64), "bar": (1e-4, 16)}
    rate, batch = rates[name]
    model = {"mnist": "cnn-28", "bar": "resnet18-pixels"}.get(name, "cnn-64")
    setting: dict[str, Any] = {
        "data": {"name": data},
        "model": model,
        "rounds": {**_ADAM, "rounds": 500, "local_epochs": 5, "batch_size": batch, "learning_rate": rate},
    }
    if name == "bar":
        setting["weights"] = "imagenet"
    return setting


def with_epochs(rows: Iterable[str], epochs: int) -> dict[str, Any]:
    """Methods of some rows that train so long, with a checkpoint after every epoch."""
    length = {"epochs": epochs, "checkpoints": epochs}
    return {row: {**METHODS[row], "options": {**METHODS[row].get("options", {}), **length}} for row in rows}


def _methods(name: str, epochs: int) -> dict[str, Any]:
    """Methods for a data set; BAR has no counterexamples to give."""
    rows = (row for row in METHODS if row not in ABLATION)
    return with_epochs((row for row in rows if name != "bar" or "counterexamples" not in METHODS[row]), epochs)


def _cells(scale: Scale) -> tuple[Cell, ...]:
    if scale != "paper":
        methods = _methods("mnist", 5 if scale == "cpu" else 1)
        return (Cell("mnist-small/all", _FUNCTION, {**small_setting(scale), "methods": methods}),)
    epochs = {"mnist": 5, "coil20": 10, "celeba": 10, "bar": 5}
    return tuple(
        Cell(f"{name}/all", _FUNCTION, {**paper_setting(name), "methods": _methods(name, epochs[name])})
        for name in epochs
    )


def _printed() -> dict[str, dict[str, Printed]]:
    names = ("worst", "disparity", "average")
    numbers = {
        f"{column}/all": {
            f"{row}/chosen_{name}": Printed(value)
            for row, values in rows.items()
            for name, value in zip(names, values, strict=False)
        }
        for column, rows in claims.PRINTED.items()
    }
    for column, budget in claims.BUDGETS.items():
        numbers[f"{column}/all"]["epsilon"] = Printed(budget)
    return numbers


# ------------------------------------------------------------------------------------------------------ golden cells


def golden_setting(**more: Any) -> dict[str, Any]:
    """A federation of a few steps on digits that need no download.

    It trains by plain gradient steps: Adam's first steps are signs of gradients, and where batch normalisation, or
    predictions that must stay as they are, make a gradient vanish, those are signs of rounding. `GOLDEN_ADAM` has
    neither.
    """
    rounds = {"cohort": 3, "rounds": 2, "local_epochs": 1, "batch_size": 32, "learning_rate": 0.02}
    return {
        "data": {"name": "painted-digits", "clients": 16},
        "model": "cnn-28-small",
        "rounds": {**_ADAM, "optimizer": "sgd", **rounds},
        "clients": 2,
        **more,
    }


def golden_rows(*rows: str) -> dict[str, Any]:
    """Methods of some rows over two epochs with a checkpoint each."""
    return with_epochs(rows, 2)


GOLDEN_METHODS = Cell(
    "golden/methods",
    _FUNCTION,
    golden_setting(epsilon=0.02, methods=golden_rows("ft", "ditto-squared", "uw", "ours-1-1", "flipped")),
)
GOLDEN_ADAM = Cell(
    "golden/adam",
    _FUNCTION,
    golden_setting(
        model="softmax",
        rounds={**_ADAM, "cohort": 3, "rounds": 2, "local_epochs": 1, "batch_size": 32, "learning_rate": 1e-3},
        epsilon=0.02,
        methods=golden_rows("ft", "ditto", "jtt", "jtt-injected", "weights-only"),
    ),
)
#: Searches the budget and the coefficients.
GOLDEN_TUNED = Cell(
    "golden/tuned", _FUNCTION, golden_setting(model="mlp", methods=golden_rows("ft", "ours", "weights-tuned"))
)


# ------------------------------------------------------------------------------------------------------ tables

CPU: tuple[Scale, ...] = ("cpu",)
FULL: tuple[Scale, ...] = ("cpu", "paper")

_TUNING = (
    "the method's own rule on our bed: validation accuracy at home does not fall even at (10, 10), the end of the "
    "grid, so D.2 takes it, and the personal model hardly moves; (1, 1) has more of both accuracies"
)

TABLE2 = Experiment(
    name="personalization/table2",
    title="Worst accuracy over two environments and the disparity between them, at the selected checkpoint",
    source="Personalized FL with spurious features, Table 2; MNIST, small, is not in the document",
    cells=_cells,
    golden=(GOLDEN_METHODS, GOLDEN_ADAM),
    printed=_printed(),
    grid=Grid(
        ROWS,
        _COLUMNS,
        "chosen_worst",
        "chosen_disparity",
        "the lower accuracy of the two environments/how much is lost by leaving the client's own, at the checkpoint "
        "that each client selects",
    ),
    claims=(
        Claim(
            "ours has less disparity than every compared method, where the document prints so",
            claims.least_disparity,
            FULL,
        ),
        Claim("the worst environment is best with ours, of all printed rows", claims.best_worst, FULL),
        Claim(
            "ours divides fine-tuning's disparity by 5 or more (5.4 printed), on the mean over data sets",
            claims.cuts_disparity,
            FULL,
            ours=True,
        ),
        Claim("Ditto, UW and JTT have less disparity than fine-tuning, where it is printed", claims.between, FULL),
        Claim(
            "the attack ends with the printed budget",
            claims.printed_budget,
            FULL,
            why="the scale: a network of 8 and 16 filters trained at ten times the rate is fooled by half the budget",
        ),
        Claim("a budget of 8/255 is enough to fool it on 30 to 50 percent", claims.budget_suffices, FULL),
        Claim("the shared model is hardly biased", claims.hardly_biased, FULL, ours=True),
        Claim(
            "ours keeps the benefit of fine-tuning without its disparity",
            claims.keeps_the_benefit,
            CPU,
            ours=True,
            why=_TUNING,
        ),
    ),
    notes={
        "cpu": "The method is the row with tuned coefficients; the rule of Appendix D.2 takes (10, 10) under every "
        "seed. By the means, UW, which is given counterexamples, has the best worst environment of the printed rows, "
        "0.013 above ours. At the end of training instead of the selected checkpoint, worst environment and "
        "disparity are 0.718/0.26 with fine-tuning, 0.829/0.14 with Ditto, 0.861/0.12 with UW, 0.727/0.25 with JTT, "
        "0.859/0.01 with ours and 0.882/0.05 with (1, 1): fine-tuning and JTT lose most by going on."
    },
    digits=3,
    derive=claims.with_checkpoints_chosen,
)
TABLE3 = Experiment(
    name="personalization/table3",
    title="Average accuracy over two environments, at the selected checkpoint",
    source="Personalized FL with spurious features, Table 3; MNIST, small, is not in the document",
    cells=_cells,
    golden=(GOLDEN_METHODS, GOLDEN_TUNED),
    printed=_printed(),
    grid=Grid(
        ROWS,
        _COLUMNS,
        "chosen_average",
        "chosen_disparity",
        "the mean accuracy of the two environments/how much is lost by leaving the client's own, at the checkpoint "
        "that each client selects",
    ),
    claims=(
        Claim("ours has the best average of all printed rows", claims.best_average, FULL, why=_TUNING),
        Claim(
            "ours is 4 points or more above the shared model (4.48 printed), on the mean over data sets",
            claims.adds_to_the_average,
            FULL,
            ours=True,
            why=_TUNING,
        ),
    ),
    notes={
        "cpu": "By the means the document's message is false here: Ditto is above ours, by 0.020 at the selected "
        "checkpoint and by 0.035 at the end of training (0.853 shared, 0.849 fine-tuning, 0.901 Ditto, 0.866 ours), "
        "though three seeds can't tell it from chance. The rule of Appendix D.2 takes the coefficients (10, 10), "
        "with which models hardly move; (1, 1) has 0.904. UW and JTT, which the document's Table 3 leaves out, have "
        "0.927 and 0.880."
    },
    digits=3,
    derive=claims.with_checkpoints_chosen,
)

EXPERIMENTS = (TABLE2, TABLE3)
