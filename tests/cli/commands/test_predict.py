import json
import os
import shutil
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from holdfast.cli.common.scoring import examples_for
from holdfast.cli.main import main
from holdfast.data import load
from holdfast.models import MODELS
from holdfast.training import Run, Training, fit
from tests.training.toy import toy_model, toy_splits


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of fit, one that DFR finished, and a federation with personal models."""
    folder = tmp_path_factory.mktemp("runs")
    fitted = ["fit", "--epochs", "2", "--batch-size", "256", "--threads", "1", "--out"]
    assert main([*fitted, str(folder / "fit"), "--coloured-digits.correlation", "0.8"]) == 0
    assert main([*fitted, str(folder / "dfr"), "--method", "dfr-val"]) == 0
    federated = ["federate", "--rounds", "4", "--cohort", "30", "--executor", "serial", "--finetuning.epochs", "2"]
    assert main([*federated, "--personalize", "ditto+finetuning", "--out", str(folder / "federation")]) == 0
    return folder


@pytest.fixture(autouse=True)
def empty(somewhere_else):
    """In an empty folder."""


def table(path):
    return pq.read_table(path).to_pydict()


def accuracy(columns):
    return sum(a == b for a, b in zip(columns["label"], columns["predicted"], strict=True)) / len(columns["label"])


@pytest.mark.parametrize("name", ["fit", "dfr"])
def test_a_runs_test_set_is_predicted_as_the_run_did_with_the_options_it_was_trained_with(runs, name, capsys):
    assert main(["predict", str(runs / name), "--out", "p.parquet"]) == 0
    columns, before = table("p.parquet"), Run.open(runs / name).predictions()
    assert columns["id"] == before["id"].tolist()
    assert [word == "5-9" for word in columns["predicted"]] == [bool(place) for place in before["predicted"]]
    results = json.loads((runs / name / "results.json").read_text())
    assert accuracy(columns) == pytest.approx(results["test"]["averages"]["test mix"])
    chosen = [max(p) for p in zip(columns["p_0-4"], columns["p_5-9"], strict=True)]
    assert chosen == pytest.approx(before["confidence"].tolist(), abs=1e-6)
    shown = capsys.readouterr().out
    assert "5-9/red" in shown and "3,573 examples in p.parquet" in shown


def test_weights_load_in_plain_torch_and_give_the_accuracy_of_the_run(runs):
    results = json.loads((runs / "dfr" / "results.json").read_text())
    model = MODELS["mlp"]((3, 10, 10), 2)
    model.load_state_dict(load_file(runs / "dfr" / "weights.safetensors"), strict=True)
    test = load("coloured-digits").test
    inputs, labels = test.gather(torch.arange(len(test)))
    with torch.no_grad():
        right = (model.eval()(inputs).argmax(1) == labels).double().mean()
    assert float(right) == pytest.approx(results["test"]["averages"]["test mix"])


def test_another_part_as_csv_and_a_file_that_is_there_is_kept(runs, capsys):
    asked = ["predict", str(runs / "fit"), "coloured-digits", "--part", "validation", "--out", "below/p.csv"]
    assert main(asked) == 0
    written = open("below/p.csv").read()  # noqa: PTH123, SIM115
    assert written.startswith('"id","label","group","predicted","p_0-4","p_5-9"\n') and written.count("\n") == 2701
    assert main(asked) == 2
    assert "say --overwrite" in capsys.readouterr().err
    assert main([*asked, "--overwrite", "--batch-size", "100"]) == 0
    again = [line.split(",")[:4] for line in open("below/p.csv")]  # noqa: PTH123, SIM115
    assert again == [line.split(",")[:4] for line in written.splitlines()]


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ([], "global"),
        (["--client", "all", "--method", "finetuning"], "finetuning"),
        (["--client", "all", "--method", "ditto-auto"], "ditto-auto"),
    ],
)
def test_a_federation_is_predicted_by_its_shared_model_or_each_clients_own(runs, given, label):
    assert main(["predict", str(runs / "federation"), "--out", "p.parquet", *given]) == 0
    columns = table("p.parquet")
    models = json.loads((runs / "federation" / "results.json").read_text())["models"]
    assert accuracy(columns) == pytest.approx(models[label]["pooled"], abs=1e-6)
    assert len(set(columns["client"])) == 50


def test_one_client_is_predicted_with_its_model_on_its_examples(runs):
    every = ["predict", str(runs / "federation"), "--method", "finetuning"]
    assert main([*every, "--client", "all", "--out", "all.parquet"]) == 0
    assert main([*every, "--client", "7", "--out", "seven.parquet"]) == 0
    everybody, seven = table("all.parquet"), table("seven.parquet")
    rows = [place for place, client in enumerate(everybody["client"]) if client == "7"]
    assert set(seven["client"]) == {"7"}
    assert seven["p_3"] == pytest.approx([everybody["p_3"][row] for row in rows], abs=1e-6)


def test_what_makes_no_sense_is_a_sentence_and_writes_nothing(runs, tmp_path, capsys):
    fitted, federated = str(runs / "fit"), str(runs / "federation")
    selection = Run.create(tmp_path / "selection", {}, kind="selection").path
    clip = Run.create(tmp_path / "clip", {}, kind="clip").path
    for typed, said in [
        (["nowhere"], "there is no run at nowhere"),
        ([str(selection)], "is a selection of data and has no model"),
        ([str(clip)], "vision-language model"),
        ([fitted, "digits"], "shape (1, 8, 8) and the model takes (3, 10, 10)"),
        ([fitted, "coloured-digits5"], "the model doesn't know: '0-1'"),
        ([fitted, "colored-digits"], "did you mean 'coloured-digits'"),
        ([fitted, str(tmp_path)], "can't tell what the columns"),
        ([fitted, "--out", "p.txt"], "written as .parquet or .csv"),
        ([fitted, "--device", "tpu"], "can't compute on the device 'tpu'"),
        ([fitted, "--device", "cuda:7"], "can't compute on the device 'cuda:7'"),
        ([fitted, "--batch-size", "0"], "--batch-size is 0"),
        ([fitted, "--client", "3"], "leave out --client"),
        ([fitted, "--method", "ditto"], "say of which client with --client"),
        ([federated, "--client", "3"], "say which with --method"),
        (
            [federated, "digits", "--client", "all", "--method", "finetuning"],
            "does not say which client each example belongs to",
        ),
        ([federated, "--client", "ward", "--method", "finetuning"], "has no client 'ward'"),
    ]:
        place = [] if "--out" in typed else ["--out", str(tmp_path / "p.parquet")]
        assert main(["predict", *typed, *place]) == 2, typed
        assert said in " ".join(capsys.readouterr().err.split()), typed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip", "selection"]


def test_a_run_that_is_not_finished_is_refused_or_its_best_epoch_taken(tmp_path, capsys):
    class KilledError(Exception):
        pass

    def kill(event):
        if event.kind == "epoch" and event.epoch == 1:
            raise KilledError

    run = Run.create(tmp_path / "run", {"data": "coloured-digits", "model": "mlp", "epochs": 3})
    splits = load("coloured-digits")
    model = MODELS["mlp"]((3, 10, 10), 2)
    with pytest.raises(KilledError):
        fit(model, splits, None, Training(epochs=3, batch_size=512), run=run, listeners=[kill])
    assert main(["predict", "run"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "`holdfast fit --resume run` finishes it, or --best-so-far" in said
    assert main(["predict", "run", "--best-so-far", "--out", "p.parquet"]) == 0
    best = MODELS["mlp"]((3, 10, 10), 2)
    best.load_state_dict(run.load_checkpoint()["best"]["weights"])
    with torch.no_grad():
        expected = best.eval()(splits.test.inputs.gather(torch.arange(50))).softmax(1)[:, 1]
    assert table("p.parquet")["p_5-9"][:50] == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_run_of_a_program_says_that_only_the_program_has_its_model(tmp_path, capsys):
    run = Run.create(tmp_path / "run", {})
    fit(toy_model(), toy_splits(), None, Training(epochs=1), run=run)
    assert main(["predict", "run"]) == 2
    assert "`model.load_state_dict(run.weights())`" in " ".join(capsys.readouterr().err.split())


def test_a_program_can_ask_for_the_examples_too(runs):
    data = examples_for(Run.open(runs / "fit"), None, None, "validation")
    assert len(data.examples) == 2700 and data.labelled and data.clients is None


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["predict", "--out", "locked/p.parquet"], "the folder of locked/p.parquet can't be written to"),
        (["export", "--to", "torch-export", "--out", "locked/m.pt2"], "locked/m.pt2 can't be made (Permission denied)"),
        (["predict"], "predictions-coloured-digits-test.parquet can't be written to"),
    ],
)
def test_a_place_that_is_read_only_is_named(runs, tmp_path, command, said):
    run = shutil.copytree(runs / "fit", tmp_path / "run")
    (tmp_path / "locked").mkdir(mode=0o555)
    run.chmod(0o555)
    bound = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
    typed = [*bound, sys.executable, "-m", "holdfast.cli.main", command[0], str(run), *command[1:]]
    done = subprocess.run(typed, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and said in " ".join(done.stderr.split())
    assert not list((tmp_path / "locked").iterdir())
    run.chmod(0o755)


def test_killed_while_it_writes_it_leaves_no_file(runs, tmp_path):
    program = f"""
import os, signal, holdfast.training.prediction_table as tables
from holdfast.cli.main import main
tables.write_atomically.__globals__["os"].fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
main(["predict", {str(runs / "fit")!r}, "--out", "p.parquet"])
"""
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, env=quiet)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "p.parquet").exists()


def test_evaluate_judges_each_clients_own_model_as_predict_wrote_it(runs):
    asked = [str(runs / "federation"), "--client", "all", "--method", "ditto-auto"]
    assert main(["predict", *asked, "--out", "p.parquet"]) == 0
    judged = ["--group", "client", "--metric", "accuracy", "--draws", "0", "--out", "e.html"]
    assert main(["evaluate", *asked, *judged]) == 0
    columns, rows = table("p.parquet"), pq.read_table("e.parquet").to_pylist()
    right = {}
    for client, label, said in zip(columns["client"], columns["label"], columns["predicted"], strict=True):
        right.setdefault(client, []).append(label == said)
    assert {row["group"][0]: row["value"] for row in rows if row["group"]} == pytest.approx(
        {client: sum(all_) / len(all_) for client, all_ in right.items()}
    )
