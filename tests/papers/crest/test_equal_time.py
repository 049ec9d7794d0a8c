"""The equal-time experiment: its beds, its curves, and how rows are compared at the seconds that they took."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.coresets import Crest
from holdfast.coresets.accounting import Accounts
from holdfast.papers.crest import cells, equal_time
from holdfast.papers.crest import tables as crest
from holdfast.papers.engine.results import CellResult, Measured, Metric, Results


def settings(**changes):
    return {**crest.SMOKE, **changes}


def test_a_redundant_bed_has_few_distinct_images_and_many_copies():
    given_bed = settings(redundant={"distinct": 0.1, "sources": 30})
    train = cells.load_splits(given_bed, 0).train
    whole = cells.load_splits(settings(), 0).train
    assert len(train) == len(whole)
    inputs, _ = train.gather(torch.arange(len(train)))
    _, counts = torch.unique(inputs.flatten(1), dim=0, return_counts=True)
    assert len(counts) == pytest.approx(len(whole) // 10 + 30, abs=2)
    assert int((counts > 10).sum()) == 30


def test_an_imbalanced_bed_has_classes_from_large_to_small():
    counts = torch.bincount(cells.load_splits(settings(imbalance=20), 0).train.labels).tolist()
    assert counts[0] / counts[-1] == pytest.approx(20, rel=0.3)
    assert counts == sorted(counts, reverse=True)


@given(st.lists(st.tuples(st.floats(1, 1e3), st.floats(0, 100)), min_size=1, max_size=5), st.floats(0.1, 1e4))
def test_between_two_points_a_curve_lies_between_their_heights_and_beyond_its_ends_it_is_flat(points, seconds):
    curve = dict(points)
    found, ends = equal_time.interpolated(curve, seconds), sorted(curve)
    assert min(curve.values()) - 1e-9 <= found <= max(curve.values()) + 1e-9
    if seconds <= ends[0] or seconds >= ends[-1]:
        assert found == curve[ends[0] if seconds <= ends[0] else ends[-1]]


def measured(name, **values):
    count = max(map(len, values.values()))
    return CellResult(name, {key: Metric(Measured.of(v)) for key, v in values.items()}, tuple(range(count)), 1.0)


def test_a_row_is_compared_with_the_curve_at_its_own_seconds_seed_by_seed():
    rows = [measured("bed/crest", accuracy=[58.0, 54.0], seconds=[2.0, 4.0])]
    for budget, seconds, accuracy in (
        ("5%", [0.5, 0.5], [40.0, 40.0]),
        ("10%", [1.0, 1.0], [50.0, 50.0]),
        ("20%", [4.0, 4.0], [60.0, 52.0]),
        ("30%", [8.0, 8.0], [70.0, 70.0]),
    ):
        rows.append(measured(f"bed/stratified {budget}", seconds=seconds, accuracy=accuracy))
    found = equal_time.gains(Results("crest/equal-time", "cpu", (0, 1), tuple(rows)), "bed", "crest")
    assert found == pytest.approx([3.0, 2.0])


def test_the_share_of_chosen_mini_batches_that_are_trained_on_is_counted():
    lazy, published = Crest(ahead=2), Crest(algorithm="published")
    steps = [torch.tensor([number]) for number in (1, 2, 3, 4, 9, 9, 9)]
    lazy.accounts = Accounts([{"step": 0, "coresets": 2}, {"step": 2, "coresets": 2}])
    assert cells.share_used(lazy, steps) == 1.0, "the last steps came after choosing had ended"
    assert cells.share_used(lazy, steps[:3]) == 0.75
    published.accounts = Accounts([{"step": 0, "coresets": 10}])
    assert cells.share_used(published, steps) == 0.5


def test_every_row_of_the_smallest_bed_trains_and_is_drawn():
    results = []
    for cell in equal_time.EQUAL_TIME.cells_at("smoke"):
        found = cells.train_on_budget({**cell.settings, "full_epochs": 2}, 0)
        results.append(measured(cell.name, **{name: [value] for name, value in found.items()}))
    svg = equal_time.draw(Results("crest/equal-time", "smoke", (0,), tuple(results)))
    assert svg.count("<svg") == 1 and "stratified" in svg and "published" in svg
    used = {cell.name: cell.metrics["used"].ours.mean for cell in results if "used" in cell.metrics}
    assert used["digits/crest"] >= 0.5
