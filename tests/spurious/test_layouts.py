"""Generated trees in the benchmarks' layouts go through SPARE's two stages and two expansions of PDE.

PDE's protocol P4 and SPARE's S6: the identities that hold for any data must hold for data as it comes from disk.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from holdfast.cli.main import main
from holdfast.data import Splits, load
from holdfast.data.sets.images.restricted_imagenet import SUPERCLASSES
from holdfast.models import build
from holdfast.spurious.group_inference.spare import Spare
from holdfast.spurious.reweighting.pde import Pde
from holdfast.training import FitResult, Training, fit
from tests.data.trees import (
    IDENTITIES,
    write_birds,
    write_cars,
    write_comments,
    write_faces,
    write_synsets,
    write_tokenizer,
)

FOUR = {"train": (12, 4, 3, 9), "validation": (1,) * 4, "test": (1,) * 4}
EIGHT = {"train": (8, 4, 4, 2, 2, 4, 4, 8), "validation": (1,) * 8, "test": (1,) * 8}
SIZE = 32
QUICK = {"check_counts": False, "size": SIZE, "workers": 0}


def waterbirds(root: Path) -> Splits:
    write_birds(root / "waterbird_complete95_forest2water2", FOUR, SIZE)
    return load("waterbirds", root, **QUICK)


def celeba(root: Path) -> Splits:
    return load("celeba", write_faces(root, FOUR, 178), **QUICK)


def urbancars(root: Path) -> Splits:
    write_cars(root / "urbancars", EIGHT, SIZE)
    return load("urbancars", root, **QUICK)


def folder(root: Path) -> Splits:
    return load("folder", path=write_birds(root / "photos", FOUR, SIZE), size=SIZE, workers=0)


def restricted_imagenet(root: Path) -> Splits:
    for part, each in (("train", 4), ("val", 1)):
        write_synsets(root / "imagenet" / part, {indices[1]: each for indices in SUPERCLASSES.values()})
    return load("restricted-imagenet", root, validation=9, **QUICK)


LAYOUTS: dict[str, Callable[[Path], Splits]] = {
    layout.__name__: layout for layout in (waterbirds, celeba, urbancars, folder, restricted_imagenet)
}
WITH_GROUPS = [name for name in LAYOUTS if name != "restricted_imagenet"]


def settings(epochs: int, **changes: object) -> Training:
    return Training(epochs=epochs, batch_size=8, learning_rate=0.01, threads=1, **changes)  # type: ignore[arg-type]


def trained(splits: Splits, policy: Spare | Pde, chosen: Training) -> FitResult:
    model = build("resnet20", splits.train.input_shape, splits.train.n_classes)
    return fit(model, splits, policy, chosen)


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_spare_separates_and_resamples_what_it_finds_on_disk(tmp_path: Path, layout: str) -> None:
    splits = LAYOUTS[layout](tmp_path)
    policy = Spare(infer_epoch=1, k_max=3)
    select_by = "worst_group" if splits.train.groups is not None else "accuracy"
    result = trained(splits, policy, settings(1, select_by=select_by, augment="flip"))

    found, n = policy.partition, len(splits.train)
    assert found is not None
    assert torch.equal(found.ids, splits.train.ids) and torch.equal(found.labels, splits.train.labels)
    assert float(found.p.sum()) == pytest.approx(1)
    for label, separation in found.classes.items():
        inside = found.labels == label
        assert float(found.p[inside].sum()) == pytest.approx(1 / splits.train.n_classes)
        sizes = torch.bincount(found.clusters[inside]).double()
        masses = torch.bincount(found.clusters[inside], found.p[inside])
        expected = sizes ** (1 - separation.lambda_)
        torch.testing.assert_close(masses * splits.train.n_classes, expected / expected.sum())
    assert [record["examples"] for record in result.history] == [n, n]
    assert result.history[-1]["full_epochs"] == pytest.approx(2)


def check_pde(result: FitResult, policy: Pde, splits: Splits, chosen: Training) -> None:
    """Spec 9.1: the balanced set, the expansions, the learning rate, the accounting and the choice of the epoch."""
    groups, n = splits.train.groups, len(splits.train)
    assert groups is not None
    counts = torch.bincount(groups)
    cap = max(int(counts[counts > 0].min()), policy.at_least)
    start = policy.additions[0]
    assert torch.equal(torch.bincount(groups[start], minlength=len(counts)), counts.clamp(max=cap))

    assert list(policy.additions) == [0, policy.first_expansion, policy.first_expansion + policy.every]
    added = torch.cat(list(policy.additions.values()))
    assert len(torch.unique(added)) == len(added)
    assert isinstance(policy.added, int)
    sizes = [len(start)] * policy.first_expansion
    while len(sizes) < chosen.epochs:
        expansions = (len(sizes) - policy.first_expansion) // policy.every + 1
        sizes.append(min(len(start) + expansions * policy.added, n))
    assert [record["examples"] for record in result.history] == sizes
    assert result.history[-1]["full_epochs"] == pytest.approx(sum(sizes) / n)
    scores = [record["score"] for record in result.history]
    assert result.best_epoch == scores.index(max(scores))


@pytest.mark.parametrize("layout", WITH_GROUPS)
def test_pde_balances_and_expands_what_it_finds_on_disk(tmp_path: Path, layout: str) -> None:
    splits = LAYOUTS[layout](tmp_path)
    policy = Pde(first_expansion=2, every=1, added=5, rate_decay=0.1)
    chosen = settings(4, augment="flip")
    result = trained(splits, policy, chosen)
    check_pde(result, policy, splits, chosen)
    rates = [record["learning_rate"] for record in result.history]
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001])


WORDS = ("a", "kind", "rude", "word", *IDENTITIES)


def comments() -> list[tuple[str, str, str, tuple[str, ...]]]:
    """Comments in which a toxic one is rude, and most of those that mention the first identity are toxic."""
    rows = []
    for number in range(60):
        split = ("train", "train", "train", "val", "test")[number % 5]
        toxic = number // 5 % 2
        tags = (IDENTITIES[0 if number % 7 < 5 else 6],) if toxic else IDENTITIES[number % 3 : number % 3 + 1]
        rows.append((f"a {('kind', 'rude')[toxic]} word {tags[0]}", split, str(float(toxic)), tags))
    return rows


@pytest.fixture(scope="module")
def text_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with comments, a tokenizer, and the weights of a text encoder of two layers."""
    transformers = pytest.importorskip("transformers")
    root = write_comments(tmp_path_factory.mktemp("text"), comments())
    write_tokenizer(root / "tokenizer", WORDS)
    config = transformers.DistilBertConfig(
        vocab_size=2 + len(WORDS), dim=16, hidden_dim=32, n_layers=2, n_heads=2, max_position_embeddings=8
    )
    transformers.DistilBertForMaskedLM(config).save_pretrained(root / "weights/distilbert-base-uncased")
    return root


def test_pde_expands_comments_for_a_text_encoder(text_tree: Path) -> None:
    tokenizer = str(text_tree / "tokenizer")
    splits = load("civilcomments", text_tree, tokenizer=tokenizer, max_tokens=6, partition="joint", check_counts=False)
    name, train = "distilbert-base-uncased", splits.train
    model = build(name, train.input_shape, train.n_classes, weights="hub", root=text_tree)
    policy = Pde(first_expansion=1, every=1, added=4, at_least=2)
    chosen = settings(3, optimizer="adamw", schedule="linear-steps", clip_norm=1.0, decay_all=False)
    result = fit(model, splits, policy, chosen)
    check_pde(result, policy, splits, chosen)
    assert result.test.grouping == "overlapping groups" and len(result.test.by_group) == 16


def test_the_command_line_fits_comments_from_the_recipe(text_tree: Path, tmp_path: Path, capsys) -> None:
    command = [
        "fit", "--data", "civilcomments", "--data-root", str(text_tree), "--method", "group-balanced",
        "--civilcomments.tokenizer", str(text_tree / "tokenizer"), "--civilcomments.max-tokens", "6",
        "--civilcomments.no-check-counts", "--epochs", "1", "--threads", "1", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    assert main(command) == 0
    assert "civil/black" in capsys.readouterr().out
    assert (tmp_path / "run/report.html").is_file()
