import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from PIL import Image

from holdfast.cli.main import COMMANDS, main
from holdfast.errors import FederationError
from tests.data.trees import write_pairs

QUICK = ["--epochs", "2", "--threads", "1"]


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


def test_help_names_every_command(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"holdfast {name}" in shown for name in COMMANDS)


@pytest.mark.parametrize("command", [*([name] for name in COMMANDS), ["data", "get"], ["runs", "compare"]])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    assert "usage: holdfast" in capsys.readouterr().out


def test_an_unknown_command_is_answered_with_the_nearest(capsys):
    assert main(["repot"]) == 2
    assert "did you mean 'report'?" in capsys.readouterr().err


def test_where_a_users_code_failed_in_a_worker_is_shown_below_the_sentence(capsys, monkeypatch):
    def fails(arguments):
        cause = Exception('in a worker:\nTraceback (most recent call last):\n  File "net.py", line 7, in forward')
        raise FederationError("clients 0 to 3 failed in round 1: TypeError: no number") from cause

    monkeypatch.setattr("holdfast.cli.commands.runs.main", fails)
    assert main(["runs", "list"]) == 2
    shown = capsys.readouterr().err
    assert "holdfast: clients 0 to 3 failed in round 1: TypeError: no number" in shown
    assert 'File "net.py", line 7' in shown


def test_fit_leaves_a_whole_run_behind(tmp_path, capsys):
    assert main(["fit", *QUICK, "--method", "group-balanced", "--track", "tensorboard"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"5-9/red .* \d+\.\d%", shown)
    assert "which uses validation group labels" in shown
    run = tmp_path / "runs" / "coloured-digits-group-balanced-s0"
    assert yaml.safe_load((run / "config.yaml").read_text())["method"] == "group-balanced"
    assert json.loads((run / "results.json").read_text())["test"]["groups"][0]["name"] == "0-4/red"
    assert "<html" in (run / "report.html").read_text()
    assert list(run.rglob("events.out.tfevents*"))
    assert main(["fit", *QUICK, "--method", "group-balanced"]) == 0
    assert (tmp_path / "runs" / "coloured-digits-group-balanced-s0-2").exists()
    assert main(["runs", "list"]) == 0
    assert "finished" in capsys.readouterr().out
    names = [str(path) for path in (tmp_path / "runs").iterdir()]
    assert main(["runs", "compare", *names]) == 0
    assert main(["report", names[0]]) == 0


def test_printing_the_configuration_writes_nothing(tmp_path, capsys):
    assert main(["fit", "--print-config", "--epochs", "7"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["epochs"] == 7
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_says_how_to_continue_and_resume_continues(tmp_path):
    command = [sys.executable, "-m", "holdfast.cli.main", "fit", "--out", "run", "--epochs", "400", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / "run" / "checkpoints" / "last.safetensors"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "holdfast fit --resume run" in out
    assert "Traceback" not in err
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 400", "epochs: 2"))
    assert main(["fit", "--resume", "run"]) == 0
    assert (tmp_path / "run" / "results.json").exists()


def test_resuming_with_other_options_is_refused(tmp_path, capsys):
    assert main(["fit", *QUICK, "--out", "run"]) == 0
    assert main(["fit", "--resume", "run"]) == 2
    assert "is finished" in capsys.readouterr().err
    (tmp_path / "run" / "results.json").unlink()
    assert main(["fit", "--resume", "run", "--epochs", "9"]) == 2
    assert "epochs would change" in capsys.readouterr().err


def test_a_taken_place_is_refused_before_any_work(capsys):
    assert main(["fit", *QUICK, "--out", "run"]) == 0
    assert main(["fit", *QUICK, "--out", "run"]) == 2
    assert "continue it with --resume" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write anywhere")
@pytest.mark.parametrize("out", ["locked", "locked/run"])
def test_a_read_only_run_directory_is_named(tmp_path, out):
    (tmp_path / "locked").mkdir(mode=0o555)
    bound = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
    command = [*bound, sys.executable, "-m", "holdfast.cli.main", "fit", *QUICK, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{out} can't be made (Permission denied); choose another place with --out" in done.stderr
    assert list((tmp_path / "locked").iterdir()) == []


def image_folder(root, rows):
    (root / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines = ["img_id,img_filename,y,split,place"]
    for number, (y, split, place) in enumerate(rows):
        pixels = rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{number}.png")
        lines.append(f"{number},images/{number}.png,{y},{split},{place}")
    (root / "metadata.csv").write_text("\n".join(lines) + "\n")


CELLS = [(y, split, place) for split in (0, 1, 2) for y in (0, 1) for place in (0, 1)]


def test_a_folder_of_images_is_trained_on(tmp_path, capsys):
    image_folder(tmp_path / "birds", CELLS * 3)
    command = ["fit", "--data", "birds", "--model", "lenet5", "--image-size", "20", *QUICK]
    assert main([*command, "--method", "group-balanced"]) == 0
    assert "runs/birds-group-balanced-s0/report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.write_text(f.read_text().replace("place", "plaze")), "did you mean 'plaze'"),
        (lambda f: f.write_text(f.read_text().replace(",1,0,", ",,0,")), "no label in column 'y'"),
        (lambda f: f.write_text(f.read_text().replace("images/3", "../3")), "not below"),
        (
            lambda f: (f.parent / "images" / "0.png").write_bytes((f.parent / "images" / "0.png").read_bytes()[:60]),
            "0.png",
        ),
        (lambda f: f.unlink(), "has no column 'place'"),
    ],
)
def test_a_damaged_folder_is_named(tmp_path, capsys, damage, message):
    image_folder(tmp_path / "birds", CELLS * 2)
    damage(tmp_path / "birds" / "metadata.csv")
    command = ["fit", "--data", "birds", "--attribute", "place", "--image-size", "20", *QUICK, "--out", "run"]
    assert main(command) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert message in shown
    assert "Traceback" not in shown


def test_data_of_ones_own_is_read_and_described_without_training(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("age,sex,y\n" + "".join(f"{i},{'fm'[i % 2]},{i // 2 % 2}\n" for i in range(40)))
    assert main(["data", "read", "t.csv", "--attribute", "sex"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "label: column 'y', by its name" in shown and "0/sex=f" in shown and "model mlp" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert main(["data", "read", "t.csv", "--label", "z"]) == 2
    assert "no column 'z'" in capsys.readouterr().err
    assert main(["data", "read", "u.csv"]) == 2


def test_a_method_that_needs_groups_says_so(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", inputs=np.zeros((12, 4), np.float32), labels=np.arange(12) % 2)
    assert main(["fit", "--data", "a.npz", "--method", "group-balanced", *QUICK]) == 2
    assert "needs a group per training example" in capsys.readouterr().err


def test_data_is_listed_described_and_explained(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    assert main(["data", "list"]) == 0
    assert "cmnist5" in capsys.readouterr().out
    assert main(["data", "info", "coloured-digits"]) == 0
    assert "0-4/red" in capsys.readouterr().out
    assert main(["data", "info", "mnist"]) == 0
    assert "missing" in capsys.readouterr().out
    assert main(["data", "get", "celeba"]) == 2
    assert "can't be fetched automatically" in capsys.readouterr().err
    assert main(["data", "info", "celebb"]) == 2
    assert "did you mean 'celeba'" in capsys.readouterr().err


def test_data_check_says_what_is_whole_and_fails_where_something_is_damaged(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "300")
    write_pairs(tmp_path, {part: [("neutral", "a", "b")] for part in ("train", "dev", "test")})
    here = ["--data-root", str(tmp_path)]
    assert main(["data", "check", *here]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "usable" in rows["snli"] and "1 + 1 + 1 examples; no sums of its files were kept" in rows["snli"]
    assert "absent" in rows["waterbirds"] and "holdfast data get waterbirds" in rows["waterbirds"]
    assert "absent" in rows["resnet50"] and "gsm8k" in rows and "digits" not in rows
    (tmp_path / "snli_1.0/snli_1.0_dev.jsonl").write_text("[broken]\n")
    assert main(["data", "check", "snli", "digits", "folder", *here]) == 1
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "damaged" in rows["snli"] and "line 1 of" in rows["snli"]
    assert "usable" in rows["digits"] and "--folder.path" in rows["folder"]
    assert main(["data", "check", "snly", *here]) == 2
    assert "did you mean 'snli'" in capsys.readouterr().err


def test_data_check_of_a_folder_that_is_not_there_finds_nothing_and_makes_nothing(capsys, tmp_path):
    assert main(["data", "check", "--data-root", str(tmp_path / "nowhere")]) == 0
    assert "usable" not in capsys.readouterr().out
    assert not (tmp_path / "nowhere").exists()


def test_data_check_compares_public_weights_with_their_name(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")  # a long path would break the sentence
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/resnet18-f37072fd.pth").write_bytes(b"other")
    assert main(["data", "check", "resnet18", "--data-root", str(tmp_path)]) == 1
    assert "isn't the file of its name" in " ".join(capsys.readouterr().out.split())


def test_missing_data_says_where_it_was_looked_for(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "nowhere"))
    assert main(["fit", "--data", "cmnist5", "--out", "run"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "nowhere" in shown
    assert "holdfast data get" in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "pde", "--epochs", "12"], "pde first grows its set after epoch 30 and training has 12"),
        (["--method", "cvar+group-dro"], "each bring their own objective"),
        (["--method", "epic+crest+epic"], "names epic more than once; name every method once"),
        (["--method", "crest+jtt"], "put jtt before crest"),
        (["--method", "crest", "--crest.subset", "8"], "mini-batches of 32 from subsets of 8; give a subset of at"),
        (["--method", "crest", "--crest.cached-view", "--augment", "none"], "nothing is augmented"),
    ],
)
def test_a_method_that_can_not_work_is_refused_before_anything_is_written(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
