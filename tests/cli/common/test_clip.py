"""The commands for vision-language models, on a tiny world with a tower that leans on the ground."""

import csv
import json
from pathlib import Path

import pytest
import torch
import yaml

from holdfast.cli.commands.audit.multimodal import parse_multimodal
from holdfast.cli.commands.fit import task_of
from holdfast.cli.commands.fit_clip import parse_clip
from holdfast.cli.common import clip
from holdfast.cli.main import main
from holdfast.errors import ConfigError
from holdfast.methods import CLIP_METHODS
from holdfast.multimodal.tasks.shapes import images as shapes
from holdfast.training import Run
from tests.multimodal.toy import COUNTS, leaning_tower

pytest.importorskip("captum")

FIT = ["fit", "--task", "clip", "--epochs", "2", "--batch-size", "16", "--explained", "2"]
AUDIT = ["audit", "multimodal", "--min-support", "4", "--images", "2"]


@pytest.fixture
def tiny(somewhere_else, monkeypatch):
    """An empty folder, four dozen images, a tower that is made in no time."""
    monkeypatch.setattr(shapes, "GROUP_COUNTS", COUNTS)
    monkeypatch.setattr(clip, "load_tower", lambda name, root, **_: leaning_tower())


def said(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_an_audit_leaves_a_page_findings_and_sightings(tiny, capsys):
    assert main([*AUDIT, "--out", "a"]) == 0
    findings = json.loads(Path("a/findings.json").read_text())
    assert findings
    assert [one["delta"] for one in findings] == sorted((one["delta"] for one in findings), reverse=True)
    assert {one["class"] for one in findings} <= {"disc", "square"}
    seen = list(csv.DictReader(Path("a/seen.csv").read_text().splitlines()))
    assert {row["part"] for row in seen} == {"train", "validation", "test"}
    page = Path("a/audit.html").read_text()
    assert f"With {findings[0]['word']}" in page
    assert "holdfast audit verdict a --label" in page
    assert page.count("<img") >= 4
    assert "what the accuracy depends on" in said(capsys)


def test_a_verdict_is_written_down_and_fit_follows_it(tiny, capsys):
    main([*AUDIT, "--out", "a"])
    one = json.loads(Path("a/findings.json").read_text())[0]
    decided = ["audit", "verdict", "a", "--label", one["class"], "--word", one["word"], "--verdict", "spurious"]
    assert main([*FIT, "--audit", "a", "--out", "r"]) == 2
    assert "nobody has called anything spurious" in " ".join(capsys.readouterr().err.split())
    assert main([*decided, "--reviewer", "Ada", "--reason", "it only comes along"]) == 0
    (record,) = json.loads(Path("a/review.json").read_text())
    assert (record["word"], record["verdict"], record["reviewer"]) == (one["word"], "spurious", "Ada")
    assert "Next: holdfast fit --task clip --audit a" in said(capsys)
    assert main([*FIT, "--audit", "a", "--out", "r"]) == 0
    groups = {group["name"] for group in json.loads(Path("r/results.json").read_text())["test"]["groups"]}
    assert any(name.endswith(f"/{one['word']}") for name in groups)


def test_an_audit_of_other_images_is_refused(tiny, capsys):
    main([*AUDIT, "--out", "a"])
    assert main([*FIT, "--audit", "a", "--shapes.seed", "1"]) == 2
    assert "is of other images than those of shapes" in " ".join(capsys.readouterr().err.split())
    assert main([*FIT, "--audit", "nowhere"]) == 2
    assert "there is no complete audit in nowhere" in " ".join(capsys.readouterr().err.split())


def test_an_audit_of_given_sightings_ranks_those(tiny):
    Path("mine.csv").write_text("part,id,word\n" + "".join(f"train,{at},lamp\n" for at in range(0, 50, 2)))
    assert main([*AUDIT, "--seen", "mine.csv", "--out", "a", "--min-support", "1"]) == 0
    assert {one["word"] for one in json.loads(Path("a/findings.json").read_text())} <= {"lamp"}


def test_nothing_is_left_of_an_audit_that_fails(tiny, capsys):
    assert main([*AUDIT, "--seen", "gone.csv", "--out", "a"]) == 2
    assert "gone.csv can't be read" in " ".join(capsys.readouterr().err.split())
    assert not Path("a").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "shapse"], "'shapse' for vision-language models; did you mean 'shapes'"),
        (["--seen", "a.csv", "--detector", "owl"], "leave one out"),
        (["--vocabulary", "words.txt"], "give --detector too"),
    ],
)
def test_options_that_make_no_sense_are_refused(tiny, options, message):
    with pytest.raises(ConfigError, match=message):
        parse_multimodal(options)


@pytest.mark.parametrize("method", [name for name in CLIP_METHODS if name != "zero-shot"])
def test_every_method_fits_and_reports(tiny, method, capsys):
    assert main([*FIT, "--method", method, "--out", "r", "--threads", "1"]) == 0
    results = json.loads(Path("r/results.json").read_text())
    assert len(results["test"]["groups"]) == 4
    assert Path("r/report.html").exists()
    probe = method in ("linear-probe", "dfr-train", "dfr-val")
    assert Path("r/explanations.html").exists() != probe
    assert ("AIoU, mean over groups" in said(capsys)) != probe


def test_zero_shot_trains_nothing_and_leaves_nothing(tiny, capsys):
    assert main([*FIT, "--method", "zero-shot"]) == 0
    assert "shapes, zero-shot: test set" in said(capsys)
    assert not Path("runs").exists()


def test_options_of_the_method_and_the_data_reach_the_run(tiny):
    form = ["--spurious-aware.form", "release", "--spurious-aware.lambda-vs", "1", "--shapes.seed", "4"]
    assert main([*FIT, *form, "--trained", "projection_strict", "--explained", "0", "--out", "r"]) == 0
    config = yaml.safe_load(Path("r/config.yaml").read_text())
    assert config["task"] == "clip"
    assert config["spurious-aware"]["form"] == "release"
    assert config["shapes"]["seed"] == 4
    assert parse_clip(["--config", "r/config.yaml"]).config() == config
    assert not Path("r/explanations.html").exists()


def test_a_run_is_continued_by_its_own_options(tiny, capsys):
    assert main([*FIT, "--explained", "0", "--out", "whole"]) == 0
    main([*FIT, "--explained", "0", "--out", "cut"])
    Path("cut/results.json").unlink()
    assert task_of(["--resume", "cut"]) == "clip"
    assert main(["fit", "--resume", "cut"]) == 0
    one, other = (Run.open(Path(name)).weights() for name in ("whole", "cut"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    capsys.readouterr()
    assert main(["fit", "--resume", "cut"]) == 2
    assert "is finished" in " ".join(capsys.readouterr().err.split())


def test_a_run_is_reported_again_with_its_images_and_other_commands_say_what_it_is(tiny, capsys):
    main([*FIT, "--explained", "0", "--out", "r"])
    page = Path("r/report.html").read_text()
    Path("r/report.html").unlink()
    assert main(["report", "r"]) == 0
    assert Path("r/report.html").read_text().count("<img") == page.count("<img") > 0
    assert main(["audit", "groups", "--run", "r"]) == 2
    assert "is about a vision-language model" in " ".join(capsys.readouterr().err.split())


def test_templates_of_ones_own_are_used_and_checked(tiny, capsys):
    Path("t.txt").write_text("a picture of a {}.\n")
    assert main([*FIT, "--method", "zero-shot", "--templates", "t.txt"]) == 0
    Path("t.txt").write_text("a picture\n")
    assert main([*FIT, "--method", "zero-shot", "--templates", "t.txt"]) == 2
    assert "has 0 slots" in " ".join(capsys.readouterr().err.split())
    Path("t.txt").write_text("\n")
    assert main([*FIT, "--method", "zero-shot", "--templates", "t.txt"]) == 2
    assert "has no templates" in " ".join(capsys.readouterr().err.split())


def test_unknown_tasks_and_methods_are_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="there is no task 'clipp'; did you mean 'clip'"):
        task_of(["--task", "clipp"])
    with pytest.raises(ConfigError, match="did you mean 'spurious-aware'"):
        parse_clip(["--task", "clip", "--method", "spurious-awre"])


def test_terms_without_pairs_are_said_and_fail_a_strict_run(tiny, capsys):
    few = [*FIT, "--batch-size", "2", "--epochs", "1", "--explained", "0", "--strict"]
    assert main([*few, "--out", "alone"]) == 3
    assert "This result should not be used, because in a mini-batch of 2 an example" in said(capsys)


def test_a_tuned_model_is_judged_against_plain_training(tiny, capsys):
    plain = [*FIT, "--method", "erm", "--epochs", "1", "--explained", "0"]
    assert main([*plain, "--out", "plain"]) == 0
    assert main([*plain, "--out", "again", "--reference", "plain"]) == 0
    found = {one["check"]: one["verdict"] for one in Run.open(Path("again")).results["health"]["findings"]}
    assert found["plain training"] == "ok"
