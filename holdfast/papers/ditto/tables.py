"""Ditto (Li, Hu, Beirami and Smith, ICML 2021): Tables 3 to 11, Figures 5 and 7, and what they claim.

The ``paper`` scale is the published setting. Table 8 and what follows from its federations also have a ``cpu`` scale:
real Fashion-MNIST on the 500 clients of the paper, with a CNN of 6,218 parameters at half resolution instead of
3,274,634, 240 rounds of 5 local steps instead of 5,000 of 2, five epochs of fine-tuning instead of 50, and FedMGDA+
with one epsilon instead of the best of four on validation data. The step size is 0.2 instead of 0.05, to make up for
some of the rounds. Personal models are far from trained there: a client takes 24 local steps on average, in the paper
200. All columns have one seed; clean, A1 by half and A3 by a fifth have three. The other tables need data that can't be
fetched automatically, see ``holdfast data info``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from holdfast.papers.ditto import claims, golden
from holdfast.papers.ditto.columns import DEFENCES, TableSetting, kind_of
from holdfast.papers.ditto.printed import COLUMNS, FULL, printed
from holdfast.papers.engine.experiment import Cell, Claim, Experiment, Grid, Printed, Scale

_CPU = {
    "rounds": 240,
    "local_steps": 5,
    "learning_rate": 0.2,
    "executor": "batched",
    "chunk": 10,
}
_SEVERAL_SEEDS = ("clean", "a1-50", "a3-20")

#: Data sets of the full tables at the scale of the paper. Convex models are not fine-tuned.
SETTINGS = {
    "vehicle": TableSetting("vehicle", epochs=0),
    "femnist": TableSetting("femnist"),
    "fashion-mnist": TableSetting("fashion-mnist"),
    "femnist-skewed": TableSetting("femnist-skewed"),
    "celeba-leaf": TableSetting("celeba-leaf"),
    "stackoverflow": TableSetting("stackoverflow", lambdas=(0.05, 0.1, 0.3), epochs=0),
}
#: Fashion-MNIST at the scale of two cores.
FASHION_CPU = TableSetting("fashion-mnist", model="cnn-half", rounds=_CPU, epochs=5, epsilon=0.1)

#: Rows that the paper leaves out.
_MISSING = {"femnist-skewed": ("fedmgda",), "stackoverflow": ("multi-krum",)}

ROW_NAMES = {
    "global": "global",
    "local": "local",
    "fair": "fair (TERM, t=1)",
    "term-2": "TERM, t=2",
    "term-5": "TERM, t=5",
    "median": "median",
    "krum": "Krum",
    "multi-krum": "multi-Krum",
    "clipping": "clipping",
    "k-norm": "k-norm",
    "k-loss": "k-loss",
    "fedmgda": "FedMGDA+",
    "finetuning": "finetuning",
    **{f"ditto-{lambda_}": f"Ditto, λ={lambda_}" for lambda_ in ("0.01", "0.05", "0.1", "0.3", "1", "2")},
    "ditto-best": "Ditto, best λ",
    "ditto-auto": "Ditto, λ by client",
}
SAYS = "the accuracy over the test data of benign clients/its standard deviation over them"


def setting_at(name: str, scale: Scale) -> TableSetting:
    """How a federation is trained on a data set at a scale."""
    return FASHION_CPU if scale == "cpu" else SETTINGS[name]


def heading(column: str) -> str:
    """A column's heading: ``A1 20`` of ``a1-20``."""
    return column.replace("-", " ").replace("a", "A", 1) if column[0] == "a" else column


def seeds_of(column: str, scale: Scale) -> int | None:
    """At the smaller scale only some columns have several seeds."""
    return 1 if scale == "cpu" and column not in _SEVERAL_SEEDS else None


def _changed_rows(name: str) -> tuple[str, ...]:
    return tuple(row for row in ("fair", *DEFENCES) if row not in _MISSING.get(name, ()))


def _cells(scale: Scale, name: str) -> tuple[Cell, ...]:
    setting = setting_at(name, scale)
    return tuple(
        cell
        for column in COLUMNS[name]
        for cell in setting.cells(column, _changed_rows(name), most_seeds=seeds_of(column, scale))
    )


def _printed(name: str) -> dict[str, dict[str, Printed]]:
    return {
        f"{column}/{kind}": printed(FULL[name], column, [row for row in ROW_NAMES if kind_of(row) == kind])
        for column in COLUMNS[name]
        for kind in ("plain", *_changed_rows(name))
    }


_PAPER: tuple[Scale, ...] = ("paper",)
_A1 = ("a1-20", "a1-50")
_A3 = {name: tuple(column for column in columns if column.startswith("a3")) for name, columns in COLUMNS.items()}

# Why claims on Fashion-MNIST fail at the scale of two cores. None of these causes was tested by a run of its own.
_FEW_ROUNDS = (
    "Likely the scale, not tested: 240 rounds of steps four times as large instead of 5,000 may leave the shared model "
    "no time to recover from a round that attackers decide."
)
STRONG = (
    "Likely the scale, not tested: under a strong attack clients choose among λ of 0.05 to 0.2, and with 24 local "
    "steps λ = 1 is still better (.831 for .724 with λ = 0.1 under A1 by 80 %)."
)
_ORDER: Mapping[str, str] = {
    "a1-20": "Likely the scale, not tested: local models, Krum and k-loss, which learn from one client at a time, are "
    "below the fair objective after 240 rounds.",
    "a1-50": "Unknown: Krum, multi-Krum and k-norm collapse under all three seeds; larger steps than the document's "
    "may be why, but which updates they kept was not looked at.",
    "a1-80": "Unknown: Krum, multi-Krum, FedMGDA+ and clipping lose much more than printed, the fair objective less.",
    "a2-20": "Unknown: the document prints multi-Krum far below the mean, which ours is not, and our Ditto with λ = "
    "0.1 is below it, likely for want of steps.",
    "a2-50": "Unknown: the document prints multi-Krum far below the mean, which ours is not.",
    "a2-80": "Unknown: our multi-Krum stands random updates by 80 % where the printed one collapses, and our Krum "
    "collapses where the printed one stands.",
    "a3-10": "Likely the scale, not tested: Ditto's personal models have few steps and are below the median rule.",
    "a3-20": "Unknown: multi-Krum and k-norm lose much more than printed; 240 rounds of larger steps may be why.",
    "a3-50": "Unknown: every rule but FedMGDA+ and multi-Krum ends near chance, and the order among wrecked models "
    "says little; larger steps may be why.",
}
_SHORT_OF_STEPS = (
    "Likely the scale, not tested: Ditto's personal models have 24 local steps instead of 200, and FedMGDA+ is ahead "
    "of them under boosted updates."
)

LEADS = Claim("Ditto is the best or second best method in most columns", claims.ditto_leads, ours=True)
ROBUST = Claim("Ditto is ahead of the global model and of every defence under most attacks", claims.most_robust)
AHEAD = Claim("on average over attacks Ditto is ahead of the best single defence", claims.ahead_of_defences)
FAIRER_THAN_FAIR = (
    Claim(
        "without an attack Ditto is more accurate than the fair objective",
        partial(claims.ahead_in, row="ditto-auto", other="fair", columns=("clean",)),
    ),
    Claim(
        "without an attack Ditto's accuracy differs less over clients than the fair objective's",
        partial(claims.fairer, row="ditto-auto", other="fair", column="clean"),
    ),
)
TABLE_2 = (
    Claim("Table 2: Ditto is more accurate than global, local and fair models in most columns", claims.best_of_table_2),
    Claim(
        "Table 2: Ditto's accuracy differs less over clients than global, local and fair models' in most columns",
        partial(claims.best_of_table_2, metric="std"),
        why="The fair objective, or the global model, is so wrecked under some attacks that all clients fare alike.",
    ),
)


def general(name: str) -> tuple[Claim, ...]:
    """What the paper's numbers show on every data set."""
    return (
        Claim(
            "Ditto is ahead of the global model when half or more poison labels",
            partial(claims.ahead_in, row="ditto-auto", other="global", columns=("a1-50", "a1-80")),
        ),
        Claim(
            "clients that choose λ are at most 0.05 behind the best λ for all",
            partial(claims.ahead_in, row="ditto-auto", other="ditto-best", columns=COLUMNS[name], margin=-0.05),
            ours=True,
            why=STRONG if name == "fashion-mnist" else "",
        ),
    )


def _orders(name: str) -> tuple[Claim, ...]:
    """A claim per column: what the document prints well apart stands in its order."""
    return tuple(
        Claim(
            f"{heading(column)}: rows that are printed 0.05 apart are in this order",
            partial(claims.in_order, column=column),
            ours=True,
            why=_ORDER.get(column, "") if name == "fashion-mnist" else "",
        )
        for column in COLUMNS[name]
        if column in FULL[name]
    )


FAIR = (
    Claim(
        "without an attack the fair objective is as accurate as the global one, within 0.02",
        partial(claims.close, row="fair", other="global", columns=("clean",), margin=0.02),
        ours=True,
    ),
    Claim(
        "under attack the fair objective is worse than the global one",
        partial(claims.below, row="fair", other="global", columns=_A1),
    ),
)
_SAME = Claim("every entry is as printed within 0.05", partial(claims.near_printed, margin=0.05), _PAPER, ours=True)


def k_loss(name: str) -> Claim:
    """What model replacement does to the rule that keeps one update, on a data set."""
    return Claim(
        "k-loss fails under model replacement",
        partial(claims.below, row="k-loss", other="global", columns=_A3[name]),
    )


_SURVIVE = Claim(
    "clipping and FedMGDA+ stand model replacement by a tenth, within 0.03",
    partial(claims.survives, rows=("clipping", "fedmgda"), column="a3-10", margin=0.03),
    ours=True,
)
_FASHION_CLAIMS = (
    LEADS,
    replace(ROBUST, why=_SHORT_OF_STEPS),
    Claim(
        "Figure 3: Ditto is the most robust under almost all attacks, all but one",
        partial(claims.most_robust, all_but=1),
        why=_SHORT_OF_STEPS,
    ),
    AHEAD,
    *FAIRER_THAN_FAIR,
    *TABLE_2,
    Claim(
        "without an attack Ditto with λ=1 is 0.02 ahead of the global model",
        partial(claims.ahead_in, row="ditto-1", other="global", columns=("clean",), margin=0.02),
        ours=True,
    ),
    Claim(
        "without an attack Ditto with λ=1 is 0.04 ahead of local models",
        partial(claims.ahead_in, row="ditto-1", other="local", columns=("clean",), margin=0.04),
        ours=True,
    ),
    Claim(
        "under model replacement by half, a smaller λ is better",
        partial(claims.rising, column="a3-50", rows=("ditto-2", "ditto-1", "ditto-0.1")),
    ),
    Claim(
        "model replacement by half wrecks the global model, to 0.4 or less",
        partial(claims.stays_below, column="a3-50", row="global", bound=0.4),
        ours=True,
    ),
    Claim(
        "model replacement by half wrecks the fair objective, to 0.4 or less",
        partial(claims.stays_below, column="a3-50", row="fair", bound=0.4),
        ours=True,
    ),
    Claim(
        "model replacement by a fifth costs the global model 0.15",
        partial(claims.costs, row="global", column="a3-20", least=0.15),
        ours=True,
    ),
    *FAIR,
    k_loss("fashion-mnist"),
    replace(_SURVIVE, why=_FEW_ROUNDS),
    _SAME,
)
#: What the document's linear model on natural clients shows.
LINEAR = (
    Claim(
        "without an attack a larger λ is better",
        partial(claims.rising, column="clean", rows=("ditto-0.1", "ditto-1", "ditto-2")),
    ),
    Claim(
        "without an attack Ditto with λ=2 is more accurate than the global model",
        partial(claims.ahead_in, row="ditto-2", other="global", columns=("clean",)),
    ),
    Claim(
        "without an attack Ditto with λ=2 halves the spread over clients",
        partial(claims.fairer, row="ditto-2", other="global", column="clean", share=0.5),
        ours=True,
    ),
    Claim(
        "when 80 % flip labels the order of λ is reversed",
        partial(claims.rising, column="a1-80", rows=("ditto-2", "ditto-1", "ditto-0.1")),
    ),
    Claim(
        "when 80 % flip labels the global model fails, to 0.4 or less",
        partial(claims.stays_below, column="a1-80", row="global", bound=0.4),
        ours=True,
    ),
    Claim(
        "model replacement by half wrecks the global model, to 0.45 or less",
        partial(claims.stays_below, column="a3-50", row="global", bound=0.45),
        ours=True,
    ),
)
_VEHICLE_CLAIMS = (
    LEADS,
    ROBUST,
    AHEAD,
    *FAIRER_THAN_FAIR,
    *LINEAR,
    Claim(
        "when 80 % flip labels Ditto with λ=0.1 has 0.8 or more",
        partial(claims.reaches, column="a1-80", row="ditto-0.1", bound=0.8),
        ours=True,
    ),
    Claim(
        "under model replacement by half Ditto with λ=0.1 has 0.78 or more",
        partial(claims.reaches, column="a3-50", row="ditto-0.1", bound=0.78),
        ours=True,
    ),
    *FAIR,
    _SAME,
)
_FEMNIST_CLAIMS = (
    LEADS,
    ROBUST,
    *FAIRER_THAN_FAIR,
    *TABLE_2,
    Claim(
        "without an attack local < global < Ditto",
        partial(claims.rising, column="clean", rows=("local", "global", "ditto-1")),
    ),
    *FAIR,
    k_loss("femnist"),
    _SURVIVE,
)
_SKEWED_CLAIMS = (
    LEADS,
    ROBUST,
    AHEAD,
    Claim(
        "without an attack global < local < Ditto",
        partial(claims.rising, column="clean", rows=("global", "local", "ditto-0.1")),
    ),
    Claim(
        "the median collapses though nobody attacks, to 0.2 or less",
        partial(claims.stays_below, column="clean", row="median", bound=0.2),
        ours=True,
    ),
)


#: What a reader of Table 8 at the smaller scale must know; the figures are checked against the stored ones by a test.
_NOTES: Mapping[Scale, str] = {
    "cpu": (
        "Beyond what the claims ask, this scale contradicts the document in many entries (ours / printed): when half "
        "poison labels, multi-Krum .294 / .889, k-norm .239 / .888 and Krum .097 / .818; under model replacement by a "
        "tenth, the global model .304 / .753; without an attack, k-loss .644 / .898; under random updates by 80 %, "
        "multi-Krum .706 / .095 and Krum .178 / .805; under model replacement by half, k-norm .122 / .828. A claim per "
        "column says how far the printed order of rows is met. Columns other than clean, A1 50 and A3 20 have one seed."
    )
}


def _full(
    table: int,
    name: str,
    title: str,
    own: tuple[Claim, ...],
    *,
    small: tuple[Cell, ...],
    scales: tuple[Scale, ...] = _PAPER,
) -> Experiment:
    return Experiment(
        name=f"ditto/table{table}",
        title=title,
        source=f"Ditto, Table {table}, with the rows of Table 4 (ICML 2021)",
        cells=partial(_cells, name=name),
        golden=small,
        printed=_printed(name),
        grid=Grid(ROW_NAMES, {column: heading(column) for column in COLUMNS[name]}, "pooled", "std", SAYS),
        claims=(*own, *general(name), *_orders(name)),
        notes=_NOTES if "cpu" in scales else {},
        scales=scales,
        digits=3,
    )


TABLE_8 = _full(
    8,
    "fashion-mnist",
    "Fashion-MNIST on 500 clients under attack (at scale cpu with a network of 6,218 parameters)",
    _FASHION_CLAIMS,
    small=(golden.DEFENDED, golden.FASHION),
    scales=("cpu", "paper"),
)

EXPERIMENTS = (
    _full(6, "vehicle", "Vehicle, a linear SVM on 23 sensor nodes, under attack", _VEHICLE_CLAIMS, small=(golden.SVM,)),
    _full(7, "femnist", "FEMNIST by 205 writers under attack", _FEMNIST_CLAIMS, small=(golden.FEMNIST,)),
    TABLE_8,
    _full(
        9,
        "femnist-skewed",
        "FEMNIST on 100 clients of five classes each under attack",
        _SKEWED_CLAIMS,
        small=(golden.FEMNIST, golden.SKEWED),
    ),
    _full(10, "celeba-leaf", "CelebA by 515 celebrities under attack", FAIRER_THAN_FAIR, small=(golden.CELEBA,)),
    _full(
        11,
        "stackoverflow",
        "StackOverflow by 400 users under attack",
        (LEADS, ROBUST, AHEAD, FAIRER_THAN_FAIR[0]),
        small=(golden.WORDS,),
    ),
)
