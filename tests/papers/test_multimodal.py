"""The experiments on vision-language models: every row runs, and claims read what they should."""

import pytest

from holdfast.data.folder import WATERBIRDS_COUNTS
from holdfast.errors import MissingDependencyError
from holdfast.multimodal import SpuriousAware
from holdfast.papers import multimodal, multimodal_cells, multimodal_more
from holdfast.papers.engine.catalog import find
from holdfast.papers.multimodal_cells import detect, method_of, tune
from tests.multimodal.toy import TWO_TEMPLATES, leaning_tower, tiny_task

pytest.importorskip("captum")


@pytest.fixture
def tiny(monkeypatch):
    from holdfast.data.inputs import TensorInputs
    from holdfast.multimodal.metrics import tight_boxes
    from holdfast.multimodal.shapes_data import visible
    from holdfast.multimodal.tasks import ClipTask

    def world(settings, seed):
        tower = leaning_tower()
        made = tiny_task(tower)
        regions = {part: TensorInputs(tight_boxes(scenes.masks)) for part, scenes in made.scenes.items()}
        shown = {part: visible(scenes) for part, scenes in made.scenes.items()}
        return tower, ClipTask(made.splits, TWO_TEMPLATES, regions, shown)

    monkeypatch.setattr(multimodal_cells, "world", world)


@pytest.mark.parametrize("name", ["multimodal/table7.4", "multimodal/ablation"])
def test_every_row_of_the_small_world_runs(tiny, name):
    for cell in find(name).cells_at("smoke"):
        found = tune({**cell.settings, "explained": 1}, 0)
        assert 0 <= found["worst_group"] <= found["average"] + 100
        assert ("aiou" in found) == (cell.settings["method"] not in ("linear probe", "dfr-train", "dfr-val"))
        assert {"disc/sand", "square/sea"} <= set(found)


def test_detection_names_the_place_of_planted_pairs(tiny):
    once, everywhere = find("multimodal/detection").cells_at("smoke")
    found = detect(once.settings, 0)
    assert sorted(found[f"{pair} place"] for pair in ("disc/sand", "square/sea")) == [1, 2]
    assert min(found[f"{pair} delta"] for pair in ("disc/sand", "square/sea")) > 0.5
    assert found["square/sea information"] > 0
    more = detect(everywhere.settings, 0)
    assert more["disc/sand delta"] > more["disc/grass delta"]
    assert {"disc/brick delta", "square/grass delta", "square/brick delta"} <= set(more)


def test_rows_say_their_terms():
    both = method_of("lc+vc+vs", "release")
    assert isinstance(both, SpuriousAware)
    assert (both.lambda_lc, both.lambda_vc, both.lambda_vs, both.lambda_ls) == (1, 1, 1, 0)
    assert (both.form, both.sampling) == ("release", "balanced")
    assert method_of("lc+ls", "cs", "natural").sampling == "natural"
    assert method_of("erm") is None


def test_printed_numbers_agree_with_one_another():
    """The adjusted average of the printed groups is the printed average; every printed row is one that runs."""
    counts = WATERBIRDS_COUNTS["train"]
    for column in ("RN50", "ViT-L-14-336"):
        row = multimodal.TABLE_7_4.printed[f"{column}/pre-trained"]
        groups = [row[name].mean for name in ("landbird/land", "landbird/water", "waterbird/land", "waterbird/water")]
        adjusted = sum(n * accuracy for n, accuracy in zip(counts, groups, strict=True)) / sum(counts)
        assert adjusted == pytest.approx(row["average"].mean, abs=0.06)
    for experiment in (multimodal.TABLE_7_4, multimodal_more.ABLATION):
        cells = {cell.name for scale in experiment.scales for cell in experiment.cells_at(scale)}
        assert set(experiment.printed) <= cells


def test_the_paper_scale_has_waterbirds_with_both_towers_and_the_pair():
    cells = {cell.name: cell.settings for cell in multimodal.TABLE_7_4.cells_at("paper")}
    assert {name.partition("/")[0] for name in cells} == {"RN50", "ViT-L-14-336", "pacifier, RN50"}
    assert cells["ViT-L-14-336/erm"]["tuning"]["batch_size"] == 32
    assert cells["RN50/group-dro"]["tuning"]["weight_decay"] == 1.0
    assert "pacifier, RN50/lc+vc+vs" not in cells


def test_without_open_clip_the_paper_s_templates_name_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "open_clip", None)
    with pytest.raises(MissingDependencyError, match="open-clip"):
        multimodal_cells.openai_templates()
