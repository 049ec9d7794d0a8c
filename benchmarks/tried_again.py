"""Trials on data that nobody here wrote, in which methods once handed out bad models with a good page, once more.

What happens now, and what is said of it: by the checks of a run (`holdfast.training.health`), by the page of an audit,
by a preset. Images are airplanes and ships of CIFAR-10, halved to 16 x 16; no method is given the attribute of training
images unless it asks for it.

Run: ``python -m benchmarks.tried_again``, some ten minutes; ``--rows spare jtt`` for a few. Outcomes are kept in
results/tried-again/, and docs/results/tried-again.md is made of them.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.cli.common.health import reference_report
from holdfast.cli.main import main as holdfast
from holdfast.data import Examples, Splits, read
from holdfast.data.catalog import data_root, find
from holdfast.data.readers.idx import read_digits
from holdfast.data.sets.images.cifar import read_parquet
from holdfast.models import build
from holdfast.poisoning import Epic
from holdfast.poisoning.isolation import class_budgets
from holdfast.spurious import Jtt, Pde, Spare
from holdfast.training import FitResult, Policy, Training, fit

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "tried-again"
PAGE = ROOT / "docs" / "results" / "tried-again.md"
PLANE, SHIP, FROG = 0, 8, 6
#: Training, validation and test images; half of each are ships.
SIZES = (2000, 400, 1000)
#: Images of the audit: wrong ones in the first class, and a rare group, negatives, among the others.
PLANTED, RARE, PER_CLASS = 25, 33, 416
WITNESSES = ("both", "isolation", "self-confidence")


@dataclass(frozen=True)
class Row:
    """What is known of a trial: what was tried, what happened once, what happens now, and what is said of it."""

    tried: str
    then: str
    now: str
    said: str


# ------------------------------------------------------------------------------------------------------ the data


def images(label: int) -> Tensor:
    """A class of CIFAR-10's training images, 16 x 16, from 0 to 1."""
    pixels, labels = read_parquet(data_root() / "cifar10" / "train.parquet")
    of_class = torch.from_numpy(pixels[np.asarray(labels) == label]).to(torch.float32) / 255
    return F.avg_pool2d(of_class, 2)


def marked(shown: Tensor) -> Tensor:
    """With a faint mark: a checkerboard in a corner, blended in at .3."""
    board = (torch.arange(4)[:, None] + torch.arange(4)) % 2
    shown = shown.clone()
    shown[:, :, :4, :4] = 0.7 * shown[:, :, :4, :4] + 0.3 * board
    return shown


def shortcut(planes: float = 0.05, ships: float = 0.95, known: bool = False) -> Splits:
    """Airplanes and ships of which these shares carry the mark, in training and validation; half of each in the test.

    Args:
        planes: share of marked airplanes.
        ships: share of marked ships.
        known: whether the attribute of training images is.
    """
    parts, first, classes = [], 0, (images(PLANE), images(SHIP))
    for part, size in enumerate(SIZES):
        half, inputs, attributes = size // 2, [], []
        for shown, share in zip(classes, (0.5, 0.5) if part == 2 else (planes, ships), strict=True):
            count = round(share * half)
            own = shown[first : first + half]
            inputs.append(torch.cat([marked(own[:count]), own[count:]]))
            attributes.append((torch.arange(half) < count).long())
        labels = torch.arange(2).repeat_interleave(half)
        attribute = torch.cat(attributes) if part or known else None
        parts.append(Examples.of(torch.cat(inputs), labels, attributes=attribute, class_names=("airplane", "ship")))
        first += half
    return Splits("airplanes and ships", parts[0], parts[1], parts[2])


# ------------------------------------------------------------------------------------------------------ the trials


def trained(policy: Policy, splits: Splits, epochs: int = 10) -> FitResult:
    """A small network, one thread; warnings are part of what the checks say."""
    settings = Training(epochs=epochs, batch_size=32, learning_rate=0.05, select_by="worst_group", threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(build("pocket-cnn-batchnorm", (3, 16, 16), 2), splits, policy, settings)


def fared(result: FitResult) -> str:
    """How the test set fares."""
    return f"{100 * result.test.accuracy:.1f} % right, worst group {100 * result.test.worst_accuracy:.1f} %"


def said_of(result: FitResult) -> str:
    """The headline of the checks."""
    return f"{result.health.verdict}: {result.health.headline}"


def spare() -> Row:
    """SPARE with a fixed early epoch, as its default was, and as it chooses now."""
    early, now = (trained(policy, shortcut()) for policy in (Spare(infer_epoch=1), Spare()))
    return Row(
        "SPARE, defaults, a watermark on 95 % of ships and 5 % of airplanes",
        "inferred before the mark was learned; 41 % right on a balanced two-class test; nothing was said",
        f"it chooses its epoch: {fared(now)}. After epoch 1, as it was: {fared(early)}",
        f"{said_of(now)} After epoch 1: {said_of(early)}",
    )


def jtt() -> Row:
    """JTT with a first stage of one epoch, and as it chooses now."""
    early, now = (trained(policy, shortcut()) for policy in (Jtt(infer_epoch=1), Jtt()))
    return Row(
        "JTT, defaults, same data",
        "700 of 2,000 in the error set, mostly the majority; epochs 18 times longer; validation worst group 1.6 %; "
        "nothing was said",
        f"its first stage runs until its mistakes are plausible: {fared(now)}. After one epoch: {fared(early)}",
        f"{said_of(now)} After one epoch: {said_of(early)}",
    )


def pde() -> Row:
    """PDE with its defaults."""
    result = trained(Pde(), shortcut(known=True), epochs=40)
    return Row(
        "PDE, same data",
        "the chosen epoch (27) lies before the first expansion (30): subsampling, not PDE; nothing was said",
        f"{fared(result)}; chosen epoch {result.best_epoch + 1}",
        said_of(result) + _checked(result, "chosen epoch"),
    )


def pde_empty() -> Row:
    """PDE where no airplane carries the mark."""
    result = trained(Pde(first_expansion=5), shortcut(planes=0.0, known=True))
    return Row(
        "PDE where a (class, attribute) cell is empty",
        "balances the rest and trains on a perfectly correlated set; a generic warning",
        fared(result),
        said_of(result),
    )


def _checked(result: FitResult, name: str) -> str:
    return "".join(
        f" The check of the {name}: {one.sentence}."
        for one in result.health.findings
        if one.check == name and one.verdict == result.health.verdict == "ok"
    )


def audit() -> Row:
    """`audit poison` on images with a rare group and planted wrong ones, in two pairs of classes."""
    garments = read_digits(find("fashion-mnist"), data_root())
    of = {
        label: F.avg_pool2d(torch.from_numpy(garments.images[garments.labels == label]).float()[:, None] / 255, 2)
        for label in (1, 9)
    }
    apart = _audited(of[1], of[9], of[9][-PLANTED:])
    alike = _audited(images(PLANE), images(SHIP), images(FROG))
    return Row(
        "`audit poison` on images with a minority and planted wrong ones",
        "all 18 planted images found, and 19 of 24 clean minority images dropped (18 of 558 others); nothing was said",
        f"trousers with planted boots, and boots of which some are negatives: {apart[0]}. Airplanes with planted "
        f"frogs, and ships of which some are negatives: {alike[0]}",
        f"{apart[1]}. Airplanes and ships: {alike[1]}",
    )


def _audited(first: Tensor, second: Tensor, wrong: Tensor) -> tuple[str, str]:
    """What is found in two classes, one with planted images and one with negatives, and what is said of it."""
    first, second = first[:PER_CLASS].clone(), second[:PER_CLASS].clone()
    first[:PLANTED], second[:RARE] = wrong[:PLANTED], 1 - second[:RARE]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        np.savez(place / "own.npz", inputs=torch.cat([first, second]).numpy(), labels=np.arange(2).repeat(PER_CLASS))
        assert holdfast(["audit", "poison", "--data", str(place / "own.npz"), "--model", "pocket-cnn-batchnorm",
                         "--epochs", "10", "--batch-size", "32", "--learning-rate", "0.05", "--threads", "1",
                         "--out", str(place / "audit")]) == 0  # fmt: skip
        suspects = list(csv.DictReader((place / "audit" / "suspects.csv").read_text().splitlines()))
        trained_on = set(read(place / "own.npz").train.ids.tolist())
    kinds = {"planted": range(PLANTED), "rare": range(PER_CLASS, PER_CLASS + RARE), "other": range(2 * PER_CLASS)}
    counts, said = [], []
    for kind, ids in kinds.items():
        taken = trained_on & set(ids)
        trained_on -= taken
        ones = [one for one in suspects if int(one["id"]) in taken]
        counts.append(f"{len(ones)} of {len(taken)} {kind} ones are suspects")
        by = ", ".join(f"{name} {sum(one['speaks'] == name for one in ones)}" for name in WITNESSES)
        few = sum(one["in_small_cluster"] == "1" for one in ones)
        said.append(f"of the {len(ones)} {kind} suspects {few} are marked as in a small cluster; who speaks: {by}")
    return ", ".join(counts), "; ".join(said)


def epic() -> Row:
    """EPIC with a fraction above one half."""
    sizes = torch.tensor([1000, 1000])
    budgets = class_budgets(sizes, 0.6, stream=torch.Generator().manual_seed(0))
    policy = Epic(fraction=0.6, start=2, every=2)
    result = trained(policy, shortcut())
    dropped = sum(len(drop.ids) for drop in policy.drops)
    return Row(
        "EPIC, fraction 0.6",
        "capped silently at half a class",
        f"{budgets[0]} and {budgets[1]} medoids in classes of 1,000; {dropped:,} of 2,000 dropped; {fared(result)}",
        said_of(result),
    )


def preset() -> Row:
    """PDE's preset of the coloured digits, with the published rate cut and as it is now."""
    worst: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, more in (("now", []), ("cut", ["--pde.rate-decay", "0.1"])):
            for seed in range(3):
                out = Path(folder) / f"{name}{seed}"
                seeds = ["--seed", str(seed), "--coloured-digits.seed", str(seed)]
                words = ["fit", "--data", "coloured-digits", "--method", "pde", *seeds, *more]
                assert holdfast([*words, "--out", str(out)]) == 0
                worst.setdefault(name, []).append(reference_report(out).worst_accuracy)
    shown = {name: " / ".join(f"{100 * value:.1f}" for value in values) for name, values in worst.items()}
    return Row(
        "PDE's digits preset",
        "the rate cut costs 2 points in every seed; nothing was said",
        f"no cut by default; worst group of three seeds {shown['now']}, with the cut {shown['cut']}",
        "the preset says why it has no cut; the documents' experiments keep theirs",
    )


ROWS: Mapping[str, Callable[[], Row]] = {
    "spare": spare,
    "jtt": jtt,
    "pde": pde,
    "pde-empty": pde_empty,
    "audit": audit,
    "epic": epic,
    "preset": preset,
}


# ------------------------------------------------------------------------------------------------------ of experiments


def measured(experiment: str) -> dict[str, dict[str, list[float]]]:
    """The stored values of an experiment: by cell and metric one per seed."""
    stored = json.loads((ROOT / "results" / f"{experiment}.cpu.json").read_text())
    return {cell["name"]: cell["values"] for cell in stored["cells"]}


def human_labels() -> Row:
    """EPIC as a finder of wrong labels, from health/human-labels."""
    cells = measured("health/human-labels")

    def of(metric: str) -> str:
        return " / ".join(f"{statistics.fmean(values[metric]):.3f}" for values in cells.values())

    return Row(
        "EPIC as a finder of human label errors (CIFAR-10N, 2,000 images)",
        'precision .436 / .702 / .909 where cleanlab\'s default score has .574 / .894 / 1.000; "suspects"',
        f"precision by {', '.join(cells)}, three seeds: isolation {of('isolated')}; as many by the page's second order "
        f"{of('own')}, by cleanlab {of('cleanlab')}; where both witnesses speak {of('both')}",
        "each suspect says which of the two speaks; the page's order is self-confidence "
        "([health/human-labels](health/human-labels.cpu.md))",
    )


def transferability() -> Row:
    """The search for coefficients, from personalization/table2-mended."""
    (values,) = measured("personalization/table2-mended").values()
    pairs = zip(values["ours/adversarial"], values["ours/weights"], strict=True)
    taken = " / ".join(f"({one:g}, {other:g})" for one, other in pairs)

    def gained(row: str) -> str:
        average, shared = (statistics.fmean(values[f"{name}average"]) for name in (f"{row}/chosen_", "global/"))
        return f"{100 * (average - shared):+.1f}"

    return Row(
        "`--personalize transferability` with its default `auto`",
        "(10, 10) in every seed: 1.3 points gained where (1, 1) gains 5.3 and the document 6.2; validation falls in "
        "personalization, which the document's rule forbids; nothing was said",
        f"coefficients, means over three personalizations of three shared models: {taken}; average over both "
        f"environments against the shared model {gained('ours')} points, with (1, 1) {gained('ours-1-1')}",
        "accuracy may not fall at any checkpoint; where every pair lets it fall, a warning says so "
        "([personalization/table2-mended](personalization/table2-mended.cpu.md))",
    )


#: By the experiment that has their numbers; what is not measured is not in the table.
OF_EXPERIMENTS: Mapping[str, Callable[[], Row]] = {
    "health/human-labels": human_labels,
    "personalization/table2-mended": transferability,
}


# ------------------------------------------------------------------------------------------------------ the page


def page() -> str:
    """The table, of the outcomes that are kept."""
    lines = [
        "<!-- Written by benchmarks/tried_again.py; don't edit. -->",
        "",
        "# Trials that went wrong, once more",
        "",
        "In each of these a method once handed out a bad model with a good page, on data that nobody here wrote. What "
        "happens now, and what is said of it? `python -m benchmarks.tried_again` repeats it; one seed where no number "
        "of seeds is given. [Is this result to be trusted?](../guides/is-this-result-to-be-trusted.md) tells what is "
        "checked, and [health/beds](health/beds.cpu.md) how often the checks are right.",
        "",
        "| what was tried | what happened | what happens now | what is said now |",
        "| --- | --- | --- | --- |",
    ]
    rows = [Row(**json.loads((KEPT / f"{name}.json").read_text())) for name in ROWS]
    rows += [row() for name, row in OF_EXPERIMENTS.items() if (ROOT / "results" / f"{name}.cpu.json").exists()]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in asdict(row).values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the trials that are asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", choices=tuple(ROWS), default=tuple(ROWS))
    KEPT.mkdir(parents=True, exist_ok=True)
    for name in parser.parse_args().rows:
        (KEPT / f"{name}.json").write_text(json.dumps(asdict(ROWS[name]()), indent=2) + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
