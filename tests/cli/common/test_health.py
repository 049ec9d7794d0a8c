import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from holdfast.cli.main import main
from holdfast.training import Run

pytestmark = pytest.mark.usefixtures("somewhere_else")
FIT = ["fit", "--data", "own.npz", "--model", "linear", "--epochs", "3", "--threads", "1", "--learning-rate", "0.1"]


@pytest.fixture(autouse=True)
def own(tmp_path, somewhere_else):
    stream = np.random.default_rng(0)
    labels = np.arange(240) % 2
    useless = stream.normal(size=(240, 3)).astype(np.float32)
    np.savez("noise.npz", inputs=useless, labels=labels)
    np.savez("own.npz", inputs=useless + 2 * labels[:, None], labels=labels)


def of(data):
    return [data if part == "own.npz" else part for part in FIT]


def test_a_result_on_noise_is_said_to_be_doubtful_and_a_doubt_is_no_failure(capsys):
    assert main([*of("noise.npz"), "--strict", "--out", "plain"]) == 0
    assert Run.open(Path("plain")).results["health"]["verdict"] == "doubtful"
    assert "This result is doubtful, because its mean class accuracy of" in capsys.readouterr().out


def test_a_strict_run_that_worked_ends_with_zero(capsys):
    assert main([*FIT, "--strict", "--out", "good"]) == 0
    assert "No problem found" in capsys.readouterr().out
    config = yaml.safe_load(Path("good/config.yaml").read_text())
    assert "strict" not in config


def test_a_worse_run_than_its_reference_fails(capsys):
    assert main([*FIT, "--out", "plain"]) == 0
    worse = [*FIT, "--learning-rate", "1e-9", "--reference", "plain", "--strict", "--out", "worse"]
    assert main(worse) == 3
    findings = json.loads(Path("worse/results.json").read_text())["health"]["findings"]
    assert "plain training" in {finding["check"] for finding in findings if finding["verdict"] == "failed"}
    assert "and that of plain training" in capsys.readouterr().out


def test_a_reference_that_is_none_is_refused(capsys, tmp_path):
    assert main([*FIT, "--reference", "nowhere"]) == 2
    Run.create(Path("unfinished"), {})
    assert main([*FIT, "--reference", "unfinished"]) == 2
    assert "isn't a finished run of `holdfast fit`" in capsys.readouterr().err


JTT = ["--method", "jtt", "--jtt.infer-epoch", "1", "--jtt.lambda-up", "3"]


def check_names(run):
    return {finding["check"] for finding in Run.open(Path(run)).results["health"]["findings"]}


def test_a_method_that_guesses_at_groups_is_compared_with_a_plain_run_beside_it(capsys):
    assert main([*FIT, *JTT, "--out", "guesses"]) == 0
    said = capsys.readouterr().out
    assert "--reference none leaves it out" in said
    assert "Plain training, for comparison: worst class" in said
    assert "plain training" in check_names("guesses")
    plain = Run.open(Path("guesses/plain"))
    assert plain.config["method"] == "erm"
    assert Run.open(Path("guesses")).results["reference"] == plain.results["test"]
    assert "Plain training, worst class" in Path("guesses/report.html").read_text()
    assert main([*FIT, "--out", "again"]) == 0  # the plain run is what `fit` alone gives
    assert Run.open(Path("again")).results["test"] == plain.results["test"]


def test_none_leaves_it_out_and_beside_asks_for_it(capsys):
    assert main([*FIT, *JTT, "--reference", "none", "--out", "alone"]) == 0
    assert not Path("alone/plain").exists()
    assert "plain training" not in check_names("alone")
    balanced = [*FIT, "--method", "class-balanced"]
    assert main([*balanced, "--out", "balanced"]) == 0
    assert not Path("balanced/plain").exists()
    assert main([*balanced, "--reference", "beside", "--out", "compared"]) == 0
    assert "plain training" in check_names("compared")
    assert main([*FIT, "--reference", "beside", "--out", "itself"]) == 2
    assert "erm is plain training itself" in capsys.readouterr().err
    assert not Path("itself").exists()


@pytest.mark.parametrize("where", ["plain", "cut"])
def test_a_run_that_is_continued_goes_on_with_its_plain_run(monkeypatch, where):
    from holdfast.training import fitting

    whole, cut = fitting._Fit._end_epoch, []

    def cut_once(loop):
        whole(loop)
        if loop.run is not None and loop.run.path.name == where and loop.curator.clock.epoch == 2 and not cut:
            cut.append(loop.run.path)
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting._Fit, "_end_epoch", cut_once)
    assert main([*FIT, *JTT, "--out", "cut"]) == 130
    assert cut
    assert main(["fit", "--resume", "cut"]) == 0
    assert main([*FIT, *JTT, "--out", "whole"]) == 0
    for part in ("cut/plain", "cut"):
        kept, other = (Run.open(Path(one)).results for one in (part, part.replace("cut", "whole")))
        assert {**kept, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize("reference", ["none", "other", None])
def test_a_run_that_is_continued_is_compared_as_it_was_begun(monkeypatch, reference):
    """Also where it was killed before it had made anything but its folder."""
    from holdfast.training import fitting

    assert main([*FIT, "--out", "other"]) == 0
    whole = fitting._Fit.go
    monkeypatch.setattr(fitting._Fit, "go", lambda loop: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main([*FIT, *JTT, *(["--reference", reference] if reference else []), "--out", "begun"]) == 130
    monkeypatch.setattr(fitting._Fit, "go", whole)
    assert main(["fit", "--resume", "begun"]) == 0
    assert Path("begun/plain").exists() == (reference is None)
    assert ("plain training" in check_names("begun")) == (reference != "none")
