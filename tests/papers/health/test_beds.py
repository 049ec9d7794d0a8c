"""Beds are what they are declared to be: shares, groups, marks, wrong labels, poisons, and what is known of them."""

import dataclasses

import pytest
import torch

from holdfast.auto.candidates import CANDIDATES
from holdfast.auto.knowledge import knowledge_of
from holdfast.papers.engine.results import CellResult, Measured, Metric, Results
from holdfast.papers.health import drawing, tables
from holdfast.papers.health.beds import DEVELOPMENT, REPORT
from holdfast.papers.health.drawing import splits_of

BUNDLED = [name for name, bed in DEVELOPMENT.items() if bed.source == "digits"]


def test_report_and_development_beds_share_neither_names_nor_source_with_shortcut():
    assert not set(REPORT) & set(DEVELOPMENT)
    seen = [{(bed.source, bed.mark) for bed in beds.values()} for beds in (REPORT, DEVELOPMENT)]
    assert not seen[0] & seen[1]
    assert len(REPORT) >= 8


@pytest.mark.parametrize("name", BUNDLED)
def test_parts_are_disjoint_even_in_classes_and_as_large_as_declared(name):
    (splits, whole), bed = splits_of(name, 3), DEVELOPMENT[name]
    parts = (splits.train, splits.validation, splits.test)
    assert tuple(map(len, parts)) == bed.sizes
    ids = [set(part.ids.tolist()) for part in parts]
    assert not ids[0] & ids[1] and not ids[0] & ids[2] and not ids[1] & ids[2]
    assert splits.test.class_counts().tolist() == [bed.sizes[2] // 2] * 2
    assert whole.ids.tolist() == splits.test.ids.tolist()


@pytest.mark.parametrize("name", BUNDLED)
def test_methods_get_only_the_attributes_that_are_known(name):
    (splits, whole), known = splits_of(name, 0), DEVELOPMENT[name].known
    assert knowledge_of(splits) == known
    assert splits.train.attributes is None and splits.train.groups is None
    assert (splits.test.attributes is None) == (known == "none")
    assert whole.attributes is not None


def test_the_shortcut_is_as_strong_as_declared_and_absent_from_the_test_set(monkeypatch):
    bed = dataclasses.replace(DEVELOPMENT["digits-corner"], known="train")
    monkeypatch.setattr(drawing, "DEVELOPMENT", {"digits-corner": bed})
    splits, _ = splits_of("digits-corner", 0)
    shares = [float((p.labels == p.attributes).float().mean()) for p in (splits.train, splits.validation, splits.test)]
    assert shares == pytest.approx([0.95, 0.725, 0.5], abs=0.01)
    marked = splits.train.inputs.values[:, 0, -2:, -2:].flatten(1).min(1).values == 1
    assert bool((marked == splits.train.attributes.bool()).float().mean() > 0.95)


def test_poisons_carry_the_mark_under_the_other_label_and_only_the_test_set_says_so():
    (splits, whole), bed = splits_of("digits-poisons", 0), DEVELOPMENT["digits-poisons"]
    marked = splits.train.inputs.values[:, 0, -2:, -2:].flatten(1).min(1).values == 1
    assert int(marked.sum()) == pytest.approx(bed.poisoned * bed.sizes[0] / 2, abs=4)
    assert set(splits.train.labels[marked].tolist()) == {1}
    assert splits.validation.attributes is None
    assert sorted(whole.group_counts().tolist()) == [125] * 4


def test_another_seed_is_another_draw_and_the_same_seed_the_same():
    first, again, other = (splits_of("digits-clean", seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first.train.ids, again.train.ids)
    assert not torch.equal(first.train.ids, other.train.ids)


def test_every_mark_shows_the_two_values_apart():
    images = torch.rand(40, 3, 14, 14, generator=torch.Generator().manual_seed(0)) * 0.5
    words = torch.randint(1, 900, (40, 12), generator=torch.Generator().manual_seed(0))
    for name, mark in drawing._MARKS.items():
        given = words if name == "word" else images
        shown = [mark(given.clone(), torch.full((40,), value), torch.Generator().manual_seed(1)) for value in (0, 1)]
        if name != "word":
            assert min(float(one.min()) for one in shown) >= 0 and max(float(one.max()) for one in shown) <= 1
        differ = (shown[0] - shown[1]).abs().flatten(1).max(1).values
        assert float(differ.min()) > 0.05, name


def test_a_word_stands_among_the_words_of_a_text_and_not_behind_them():
    texts = torch.tensor([[5, 6, 0, 0], [7, 0, 0, 0]])
    marked = drawing._MARKS["word"](texts.clone(), torch.tensor([0, 1]), torch.Generator().manual_seed(0))
    assert torch.equal(marked == 0, texts == 0)
    assert ((marked != texts).sum(1) == 1).all()


# ------------------------------------------------------------------------------------------------------- claims


def results(**cells):
    """Results of one bed from worst groups and verdicts by method."""
    made = []
    for method, (worst, verdicts, *more) in cells.items():
        alone = more[0] if more else verdicts
        told = {"verdict": verdicts, "alone": alone, "beside": verdicts}
        metrics = {name: Metric(Measured.of(values)) for name, values in {"worst_group": worst, **told}.items()}
        made.append(CellResult(f"bed/{method.replace('_', '-')}", metrics, seeds=tuple(range(len(worst)))))
    return Results("health/beds", "cpu", (0, 1, 2), tuple(made))


def verdict_of(name, made):
    return next(claim for claim in tables.BEDS.claims if claim.name.startswith(name)).check(made)


def test_only_pairs_beyond_their_noise_decide():
    made = results(
        erm=([50, 50, 50], [0, 0, 0]),
        jtt=([40, 41, 40], [2, 1, 0]),
        lff=([90, 10, 40], [0, 0, 0]),
        spare=([49, 49, 49], [0, 0, 0]),
        auto=([50, 50, 50], [0, 0, 0]),
    )
    assert set(tables.decisive(made, -1)) == {"bed/jtt"}
    worse = verdict_of("Of results that are worse", made)
    assert worse.holds is False and "0.67 of 3 runs" in worse.evidence
    assert verdict_of("Of results that are better", made).holds is None


def test_each_way_to_be_compared_has_its_own_claims():
    made = results(
        erm=([50, 50, 50], [0, 0, 0]),
        jtt=([40, 41, 40], [2, 1, 1], [0, 0, 0]),
        spare=([70, 71, 70], [0, 0, 0], [1, 0, 2]),
        auto=([69, 69, 70], [0, 0, 0]),
    )
    held = {claim.name.partition(": ")[2]: [] for claim in tables.BEDS.claims if ": " in claim.name}
    for claim in tables.BEDS.claims:
        if ": " in claim.name:
            held[claim.name.partition(": ")[2]].append(claim.check(made).holds)
    assert held == {
        "by default": [True, True],
        "with --reference none": [False, False],
        "with --reference beside for every method": [True, True],
    }


def test_auto_is_judged_against_the_best_and_against_plain_training():
    good = results(erm=([50, 50, 50], [0] * 3), jtt=([60, 60, 60], [0] * 3), auto=([58, 58, 58], [0] * 3))
    bad = results(erm=([50, 50, 50], [0] * 3), jtt=([60, 60, 60], [0] * 3), auto=([47, 47, 47], [0] * 3))
    for made, holds in ((good, True), (bad, False)):
        assert verdict_of("auto is within", made).holds is holds
        assert verdict_of("auto is on no bed", made).holds is holds


def test_every_report_bed_has_plain_training_five_methods_and_auto():
    names = [cell.name for cell in tables.BEDS.cells_at("cpu")]
    for bed, declared in REPORT.items():
        rows = [name.partition("/")[2] for name in names if name.startswith(f"{bed}/")]
        assert rows == [*CANDIDATES[declared.known], "auto"]
    assert len({cell.seeds_of(tables.BEDS.seeds) for cell in tables.BEDS.cells_at("cpu")}) == 1
    assert len(tables.BEDS.seeds) == 5
