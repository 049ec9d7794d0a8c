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
    assert not {"strict", "reference"} & set(config)


def test_a_worse_run_than_its_reference_fails(capsys):
    assert main([*FIT, "--out", "plain"]) == 0
    worse = [*FIT, "--learning-rate", "1e-9", "--reference", "plain", "--strict", "--out", "worse"]
    assert main(worse) == 3
    findings = json.loads(Path("worse/results.json").read_text())["health"]["findings"]
    assert "plain training" in {finding["check"] for finding in findings if finding["verdict"] == "failed"}
    assert "that of the reference" in capsys.readouterr().out


def test_a_reference_that_is_none_is_refused(capsys, tmp_path):
    assert main([*FIT, "--reference", "nowhere"]) == 2
    Run.create(Path("unfinished"), {})
    assert main([*FIT, "--reference", "unfinished"]) == 2
    assert "isn't a finished run of `holdfast fit`" in capsys.readouterr().err
