import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from holdfast.cli.commands.audit.groups import parse_groups
from holdfast.cli.main import main
from holdfast.data import load
from holdfast.errors import ConfigError
from holdfast.spurious import ClusterPartition

FILES = ["audit.html", "clusters.csv", "early.safetensors", "partition.json", "partition.npz"]


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The folder of one audit of the bundled digits."""
    out = tmp_path_factory.mktemp("audits") / "digits"
    assert main(["audit", "groups", "--epochs", "1", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of one epoch."""
    out = tmp_path_factory.mktemp("runs") / "plain"
    assert main(["fit", "--epochs", "1", "--seed", "3", "--out", str(out)]) == 0
    return out


def tables(folder):
    with (folder / "clusters.csv").open() as file:
        return list(csv.DictReader(file))


def refused(arguments, capsys):
    before = sorted(Path.cwd().rglob("*"))
    assert main(["audit", "groups", *arguments]) == 2
    assert sorted(Path.cwd().rglob("*")) == before, "something was left behind"
    shown = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in shown
    return shown


# ---------------------------------------------------------------------------------------------------- what it writes


def test_an_audit_leaves_its_page_and_files_and_nothing_else(audited):
    assert sorted(path.name for path in audited.iterdir()) == FILES
    assert list(audited.parent.iterdir()) == [audited]
    page = (audited / "audit.html").read_text()
    assert "mlp after 1 epoch of plain training, seed 0" in page
    assert "holdfast fit --method spare --spare.infer-epoch 1</code>" in page


def test_the_csv_has_a_line_per_cluster_that_agrees_with_the_partition(audited):
    partition = ClusterPartition.load(audited / "partition")
    lines = tables(audited)
    assert [(int(line["class"]), int(line["cluster"])) for line in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [int(line["examples"]) for line in lines] == torch.bincount(partition.groups).tolist()
    assert [line["mistaken_for"] for line in lines if float(line["mistaken"]) > 0.5] == ["5-9", "0-4"]
    for line in lines:
        found = partition.classes[int(line["class"])]
        assert (float(line["silhouette"]), float(line["lambda"])) == (found.silhouette.value, found.lambda_)
        mine = (partition.labels == int(line["class"])) & (partition.clusters == int(line["cluster"]))
        assert float(line["weight"]) == pytest.approx(float(partition.p[mine].mean()) * len(partition.p))
    assert torch.equal(partition.ids, load("coloured-digits").train.ids)


def test_the_terminal_shows_the_clusters_and_where_the_page_is(capsys):
    assert main(["audit", "groups", "--epochs", "1"]) == 0
    shown = capsys.readouterr().out
    assert "0-4, cluster 1" in shown
    assert "Page: audits/coloured-digits-groups-s0/audit.html" in shown
    assert main(["audit", "groups", "--epochs", "1"]) == 0
    assert Path("audits/coloured-digits-groups-s0-2/audit.html").exists()


def test_the_early_weights_can_be_audited_again_with_other_options(audited):
    weights = str(audited / "early.safetensors")
    assert main(["audit", "groups", "--weights", weights, "--out", "same"]) == 0
    assert (Path("same") / "partition.npz").read_bytes() == (audited / "partition.npz").read_bytes()
    assert not (Path("same") / "early.safetensors").exists()
    assert (
        main(["audit", "groups", "--weights", weights, "--output", "features", "--k-max", "3", "--out", "other"]) == 0
    )
    about = json.loads((Path("other") / "partition.json").read_text())["about"]
    assert (about["output"], about["k_max"]) == ("features", 3)


def test_a_run_brings_its_data_model_weights_and_seed(run, audited):
    assert main(["audit", "groups", "--run", str(run), "--out", "of-run"]) == 0
    partition = ClusterPartition.load(Path("of-run") / "partition")
    assert partition.about["seed"] == 3
    assert "mlp, as chosen in the run plain" in Path("of-run/audit.html").read_text()
    assert torch.equal(partition.ids, ClusterPartition.load(audited / "partition").ids)


def test_the_next_step_repeats_what_was_typed():
    command = "--data coloured-digits5 --epochs 1 --coloured-digits5.correlation 0.9 --k-max 3 --seed=2 --out here"
    assert main(["audit", "groups", *command.split()]) == 0
    page = Path("here/audit.html").read_text()
    assert (
        "holdfast fit --method spare --spare.infer-epoch 1 --spare.k-max 3 --data coloured-digits5 "
        "--coloured-digits5.correlation 0.9 --seed=2</code>"
    ) in page
    assert len(tables(Path("here"))) == 15


def test_images_in_a_folder_need_no_attributes():
    rng = np.random.default_rng(0)
    Path("photos/images").mkdir(parents=True)
    lines = ["img_filename,y,split"]
    for number in range(60):
        y, odd = number % 2, number % 10 == 0
        pixels = rng.integers(0, 90, (16, 16, 3), dtype=np.uint8)
        pixels[:, :, y ^ odd] += 150
        Image.fromarray(pixels).save(f"photos/images/{number}.png")
        lines.append(f"images/{number}.png,{y},{min(number // 20, 2) if number < 40 else 0}")
    lines += [f"images/{number}.png,{number % 2},{1 + number % 4 // 2}" for number in range(8)]
    Path("photos/metadata.csv").write_text("\n".join(lines) + "\n")
    options = "--attribute none --image-size 14 --model lenet5 --learning-rate 0.05 --batch-size 4"
    assert main(["audit", "groups", "--data", "photos", *options.split(), "--epochs", "3"]) == 0
    page = Path("audits/photos-groups-s0/audit.html").read_text()
    assert "GradCAM" in page
    assert "true attributes" not in page


def test_arrays_that_are_no_images_are_audited_without_sheets():
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 2
    inputs = rng.normal(size=(90, 4)).astype(np.float32)
    inputs[:, 0] += 6 * np.where(np.arange(90) % 10 == 0, 1 - labels, labels)
    np.savez("a.npz", inputs=inputs, labels=labels)
    assert main(["audit", "groups", "--data", "arrays", "--arrays.path", "a.npz", "--out", "x"]) == 0
    page = Path("x/audit.html").read_text()
    assert "aren't images" in " ".join(page.split()) or "aren&#x27;t images" in page
    assert "<img" not in page


# ------------------------------------------------------------------------------------------------- what it refuses


def test_audit_alone_lists_what_can_be_audited(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["audit"])
    assert stop.value.code == 0
    assert "groups" in capsys.readouterr().out


def test_an_unknown_audit_is_answered_with_those_there_are(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["audit", "grops"])
    assert stop.value.code == 2
    assert "groups" in capsys.readouterr().err


def test_help_shows_the_options_of_the_chosen_data_set(capsys):
    with pytest.raises(SystemExit):
        main(["audit", "groups", "--data", "cmnist5", "--help"])
    shown = capsys.readouterr().out
    assert "--cmnist5.correlation" in shown
    assert "--k-max" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "coloured-digit"], "did you mean 'coloured-digits'"),
        (["--k-max", "1"], "k_max is 1; give at least 2"),
        (["--epochs", "0"], "give at least one, from 1"),
        (["--learning-rate", "-1"], "give a positive number"),
        (["--model", "lennet"], "there is no model 'lennet'"),
        (["--weights", "nowhere.safetensors"], "no file of weights at nowhere.safetensors"),
        (["--weights", "a.safetensors", "--epochs", "3"], "--epochs would change nothing"),
        (["--run", "nowhere"], "there is no run at nowhere"),
        (["--run", "nowhere", "--model", "mlp", "--data", "mnist"], "--data and --model would change nothing"),
    ],
)
def test_mistakes_are_answered_in_a_sentence_and_leave_nothing_behind(arguments, message, capsys):
    assert message in refused(["--out", "place", *arguments], capsys)


def test_an_unfinished_run_has_no_model_to_audit(run, capsys):
    shutil.copytree(run, "half")
    (Path("half") / "results.json").unlink()
    assert "`holdfast fit --resume half` finishes it" in refused(["--run", "half"], capsys)


def test_weights_for_other_classes_are_refused(audited, capsys):
    weights = load_file(audited / "early.safetensors")
    save_file({**weights, "head.weight": torch.zeros(7, 128), "head.bias": torch.zeros(7)}, "seven.safetensors")
    assert "no head for the 2 classes" in refused(["--weights", "seven.safetensors", "--out", "x"], capsys)


def test_a_taken_place_is_refused_before_any_work(capsys):
    Path("taken").mkdir()
    (Path("taken") / "mine.txt").write_text("precious")
    assert "taken already exists" in refused(["--out", "taken"], capsys)
    assert (Path("taken") / "mine.txt").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_named():
    Path("locked").mkdir(mode=0o555)
    bound = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
    command = [*bound, sys.executable, "-m", "holdfast.cli.main", "audit", "groups", "--out", "locked/here"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "locked/here can't be made (Permission denied); choose another with --out" in done.stderr


def test_options_keep_the_recipe_where_they_say_nothing():
    _, plain = parse_groups([])
    assert (plain.model, plain.settings.learning_rate, plain.settings.epochs) == ("mlp", 0.01, 12)
    _, changed = parse_groups(["--learning-rate", "0.5", "--seed", "4", "--epochs", "3"])
    assert (changed.settings.learning_rate, changed.settings.seed, changed.settings.epochs) == (0.5, 4, 12)
    assert changed.settings.weight_decay == plain.settings.weight_decay == 1e-3
    with pytest.raises(ConfigError, match="file or folder 'nowhere'"):
        parse_groups(["--data", "nowhere"])
