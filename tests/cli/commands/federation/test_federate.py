import html
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from holdfast.cli.commands.federation.options import parse
from holdfast.cli.main import main
from holdfast.errors import ConfigError
from holdfast.federated import Clipping, Ditto, FineTuning, Krum, Local, Term
from holdfast.federated.aggregation import WithPreStep
from holdfast.training import Run

QUICK = ["--rounds", "6", "--cohort", "4", "--digits-clients.clients", "12", "--executor", "serial",
         "--evaluate-every", "2"]  # fmt: skip

pytestmark = pytest.mark.usefixtures("somewhere_else")


def results(folder):
    found = json.loads((folder / "results.json").read_text())
    assert found.pop("seconds") > 0
    return found


# ------------------------------------------------------------------------------------------------------- options


def test_the_published_recipe_gives_the_defaults():
    options = parse(["--data", "fashion-mnist", "--personalize", "ditto", "--attack", "a1", "--malicious", "0.5",
                     "--aggregate", "multi-krum"])  # fmt: skip
    settings = options.settings
    assert (options.choices.model, settings.rounds, settings.learning_rate) == ("cnn-fashion", 5000, 0.05)
    assert (options.aggregator.label, options.threat.attack.name, options.threat.ratio) == ("multi-krum", "a1", 0.5)
    assert options.personalizers == [Ditto()]
    epochs = parse(["--data", "stackoverflow"]).settings
    assert (epochs.local_epochs, epochs.halve_every) == (1, 200)


def test_options_of_what_was_chosen_are_named_after_it():
    options = parse(["--objective", "term", "--term.t", "2", "--aggregate", "clipping", "--personalize",
                     "ditto+local+finetuning", "--ditto.lambda", "0.5", "--finetuning.epochs", "3"])  # fmt: skip
    assert options.objective == Term(t=2)
    assert options.aggregator == Clipping()
    assert options.personalizers == [Ditto(lambda_=0.5), Local(), FineTuning(epochs=3)]
    chained = parse(["--aggregate", "clipping+krum", "--krum.reference"]).aggregator
    assert chained == WithPreStep(Clipping(), Krum(reference=True))


def test_candidates_for_lambda_are_those_of_the_data_set_for_weak_and_strong_attacks():
    (ditto,) = parse(["--data", "stackoverflow"]).personalizers
    assert (ditto.candidates, ditto.strong_candidates) == ((0.05, 0.1, 0.3), (0.01, 0.05, 0.1))
    typed = ["--data", "stackoverflow", "--ditto.candidates", "3", "4"]
    assert parse(typed).personalizers[0].candidates == (3, 4)


def test_a_pooled_data_set_is_dealt_out():
    options = parse(["--data", "mnist", "--partitioned.clients", "100", "--partitioned.partition", "dirichlet"])
    assert (options.data.source, options.data.clients, options.data.partition) == ("mnist", 100, "dirichlet")


def test_a_printed_configuration_read_back_says_the_same(tmp_path, capsys):
    typed = ["federate", "--attack", "a3", "--malicious", "0.25", "--no-malicious-known", "--personalize",
             "ditto+finetuning", "--ditto.lambda", "parallel", "--ditto.candidates", "0.1", "0.5", "--a3.boost", "5",
             "--sampling", "uniform", "--print-config"]  # fmt: skip
    assert main(typed) == 0
    printed = capsys.readouterr().out
    (tmp_path / "c.yaml").write_text(printed)
    again = parse(["--config", "c.yaml"])
    assert again.config() == yaml.safe_load(printed)
    assert again.personalizers[0] == Ditto("parallel", (0.1, 0.5))
    assert (again.threat.attack.boost, again.expectation.expect_malicious) == (5, 0)
    assert parse(["--config", "c.yaml", "--ditto.lambda", "2"]).personalizers[0].lambda_ == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("round: 3", r"unknown key 'round'; did you mean 'rounds'\?"),
        ("personalize: ditto\nditto: {lamda: 1}", r"unknown key ditto\.lamda; did you mean 'lambda'\?"),
    ],
)
def test_unknown_keys_of_a_file_are_answered_with_the_nearest(tmp_path, text, message):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        parse(["--config", "c.yaml"])


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--data", "fashon-mnist"], "did you mean 'fashion-mnist'?"),
        (["--objective", "terms"], "did you mean 'term'?"),
        (["--aggregate", "clipping+krumm"], "did you mean 'krum'?"),
        (["--aggregate", "krum+clipping"], "nothing can follow it"),
        (["--attack", "a11", "--malicious", "0.1"], "did you mean 'a1'?"),
        (["--personalize", "ditto+locale"], "did you mean 'local'?"),
        (["--personalize", "local+local"], "is named twice"),
        (["--model", "softmx"], "did you mean 'softmax'?"),
        (["--attack", "a1"], "add --malicious"),
        (["--malicious", "0.2"], "add --attack"),
        (["--attack", "a1", "--malicious", "1.5"], "share of clients that attack"),
        (["--cohort", "99"], "a round wants 99 clients and there are 12"),
        (["--objective", "term", "--aggregate", "krum"], "can't be combined with krum"),
        (["--aggregate", "trimmed-mean", "--attack", "a1", "--malicious", "0.5"], "no cohort is large enough"),
        (["--aggregate", "trimmed-mean", "--expect-malicious", "0.25"], "use --cohort 7 (up to 3 malicious)"),
        (["--aggregate", "multi-krum"], "give --expect-malicious"),
        (["--expect-malicious", "2.5"], "a share from 0 to below 1, or a whole number"),
        (["--expect-malicious", "13"], "13 malicious clients are expected among 12"),
        (["--no-malicious-known", "--expect-malicious", "0.2"], "leave one of them out"),
        (["--ditto.lambda", "50"], "is 2 or more"),
        (["--personalize", "l2sgd+pfedme"], "run one at a time"),
        (["--rounds", "0"], "rounds is 0"),
        (["--personalize", "uw"], "uw draws counterexamples more often"),
        (["--personalize", "pde"], "pde inside clients needs a group per training example"),
        (["--personalize", "dfr-train"], "dfr-train inside clients needs a group per training example"),
        (["--personalize", "group-dro"], "group-dro inside clients needs a group per training example"),
        (["--personalize", "dfr-val"], "dfr-val inside clients needs a group per validation example"),
        (["--personalize", "ssa"], "ssa inside clients needs a group per validation example"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence_before_anything_is_written(tmp_path, capsys, typed, message):
    assert main(["federate", *QUICK, *typed]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------------- runs


def test_a_federation_leaves_a_whole_run_behind(tmp_path, capsys):
    typed = ["--personalize", "ditto+finetuning", "--finetuning.epochs", "1", "--attack", "a1", "--malicious", "0.25",
             "--aggregate", "clipping", "--cohort", "8"]  # fmt: skip
    assert main(["federate", *QUICK, *typed]) == 0
    shown = capsys.readouterr().out
    assert "test accuracy of 9 benign clients" in shown
    assert "0 updates dropped; no divergence;" in shown and "executor serial" in shown
    run = tmp_path / "runs" / "digits-clients-clipping-a1-0.25-ditto+finetuning-s0"
    found = results(run)
    assert list(found["models"]) == ["global", "ditto-auto", "finetuning"]
    assert list(found["gains"]) == ["ditto-auto", "finetuning"]
    text = html.unescape((run / "report.html").read_text())
    for label, gain in found["gains"].items():
        assert gain["sentence"].startswith(f"{label} is better than the shared model for {gain['better']} of")
        assert gain["sentence"] in " ".join(shown.split()) and gain["sentence"] in text
    ditto = found["personalize"]["ditto-auto"]
    assert (ditto["start"], ditto["steps"]) == ("shared", None)
    assert (len(found["malicious"]), found["f"], found["clients"]) == (3, 3, 12)
    assert [entry["round"] for entry in found["history"]] == [2, 4, 6]
    assert sum(found["personalize"]["ditto-auto"]["lambdas"].values()) <= 9
    table = pq.read_table(run / "clients.parquet").to_pydict()
    assert len(table["client"]) == 3 * 12
    assert {"client", "name", "benign", "joined", "model", "accuracy", "loss", "count", "lambda"} == set(table)
    assert sum(table["joined"][:12]) == 6 * 8
    benign = [a for a, ok, model in zip(table["accuracy"], table["benign"], table["model"], strict=True)
              if ok and model == "global"]  # fmt: skip
    assert found["models"]["global"]["mean"] == pytest.approx(sum(benign) / len(benign))
    assert "<html" in (run / "report.html").read_text()
    assert (run / "personal" / "ditto-auto.rows").exists()
    assert main(["federate", *QUICK, "--personalize", "none", "--out", "plain"]) == 0
    assert list(results(tmp_path / "plain")["models"]) == ["global"]
    capsys.readouterr()
    assert main(["runs", "list"]) == 0
    assert "6 rounds" in capsys.readouterr().out
    assert main(["runs", "compare", str(run), "plain", "--page", "both.html"]) == 0
    assert "ditto-auto" in capsys.readouterr().out
    assert "plain: global" in (tmp_path / "both.html").read_text()
    assert main(["report", str(run)]) == 0


def test_a_rule_past_its_breakdown_point_is_told_once_and_recorded(tmp_path, capsys):
    typed = ["--aggregate", "krum", "--attack", "a1", "--malicious", "0.9", "--personalize", "none", "--out", "run",
             "--expect-by", "mean"]  # fmt: skip
    assert main(["federate", *QUICK, *typed]) == 0
    assert capsys.readouterr().out.count("warning: krum has m - f - 2 = -1 neighbours") == 1
    assert "-1 neighbours" in results(tmp_path / "run")["warnings"][0]
    assert "-1 neighbours" in (tmp_path / "run" / "report.html").read_text()


def test_a_report_has_the_success_rate_of_a_backdoor(tmp_path, capsys):
    words = ["--attack", "backdoor", "--malicious", "0.2", "--rounds", "4", "--executor", "serial", "--out", "run"]
    assert main(["federate", *words, "--personalize", "none"]) == 0
    assert "Backdoor: global takes" in " ".join(capsys.readouterr().out.split())
    found = results(tmp_path / "run")
    assert set(found["backdoor"]["global"]) == {"success", "without"}
    assert "of stamped test examples" in (tmp_path / "run" / "report.html").read_text()
    assert found["expected"]["malicious"] == 10 and found["expected"]["source"] == "attack"


def test_a_report_says_what_was_expected_and_that_a_model_diverged(tmp_path, capsys):
    typed = ["--attack", "gaussian", "--gaussian.sigma", "1e20", "--malicious", "0.25", "--personalize", "none"]
    assert main(["federate", *QUICK, *typed, "--aggregate", "k-norm", "--expect-malicious", "0", "--out", "run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "No client was expected to be malicious, as was stated." in shown
    assert "the shared model diverged" in shown and "rule that withstands the attackers" in shown
    found, page = results(tmp_path / "run"), (tmp_path / "run" / "report.html").read_text()
    assert found["divergence"]["loss"] > 1e10 and found["expected"]["malicious"] == 0
    assert "The shared model diverged" in page and "No client was expected" in page
    assert main(["federate", *QUICK, *typed, "--aggregate", "k-norm", "--cohort", "8", "--out", "told"]) == 0
    assert "3 of 12 clients were expected to be malicious" in " ".join(capsys.readouterr().out.split())
    assert results(tmp_path / "told")["divergence"] is None


def test_every_command_of_the_documentation_parses(tmp_path, monkeypatch):
    (tmp_path / "wards.csv").write_text("ward,age,outcome\nnorth,3,ill\nsouth,4,well\n")  # the data of the guides
    root = Path(__file__).parents[4]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages).replace("\\\n", " ")
    commands = re.findall(r"holdfast federate((?: [^`\n#|]+)?)", text)
    assert len(commands) > 5
    for typed in commands:
        if "--help" not in typed:
            parse(shlex.split(typed))


def test_runs_of_two_kinds_are_not_compared(tmp_path, capsys):
    Run.create(tmp_path / "a", {"data": "digits-clients", "aggregate": "mean"}, kind="federation")
    Run.create(tmp_path / "b", {"data": "coloured-digits", "method": "erm"})
    assert main(["runs", "compare", "a", "b"]) == 2
    assert "compare runs of one kind" in " ".join(capsys.readouterr().err.split())
    assert main(["federate", "--resume", "b"]) == 2
    assert "one of `holdfast fit`" in " ".join(capsys.readouterr().err.split())


def test_a_federation_stopped_by_ctrl_c_and_then_killed_ends_as_if_nothing_had_happened(tmp_path, capsys):
    typed = ["--rounds", "60", "--cohort", "4", "--executor", "serial", "--checkpoint-seconds", "0",
             "--personalize", "ditto+local", "--ditto.lambda", "1", "--attack", "a2", "--malicious", "0.2"]  # fmt: skip
    checkpoint = tmp_path / "run" / "checkpoints" / "last.safetensors"
    for arguments, end in (([*typed, "--out", "run"], signal.SIGINT), (["--resume", "run"], signal.SIGKILL)):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        command = [sys.executable, "-m", "holdfast.cli.main", "federate", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.01)
        process.send_signal(end)
        out, err = process.communicate(timeout=60)
        assert process.returncode == (130 if end == signal.SIGINT else -signal.SIGKILL), err
        if end == signal.SIGINT:
            assert "holdfast federate --resume run" in out
    assert 0 < Run.open(tmp_path / "run").load_checkpoint()["number"] < 60
    assert main(["federate", "--resume", "run", "--checkpoint-seconds", "60"]) == 0
    assert main(["federate", *typed, "--checkpoint-seconds", "60", "--out", "whole"]) == 0
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    tables = [pq.read_table(tmp_path / name / "clients.parquet") for name in ("run", "whole")]
    assert tables[0].equals(tables[1])


def test_a_run_is_continued_as_it_was_started(tmp_path, capsys):
    assert main(["federate", *QUICK, "--personalize", "none", "--out", "run"]) == 0
    assert main(["federate", *QUICK, "--out", "run"]) == 2
    assert "continue it with --resume" in capsys.readouterr().err
    assert main(["federate", "--resume", "run"]) == 2
    assert "is finished" in capsys.readouterr().err
    (tmp_path / "run" / "results.json").unlink()
    assert main(["federate", "--resume", "run", "--executor", "batched"]) == 2
    assert "executor would change" in " ".join(capsys.readouterr().err.split())
    run = Run.open(tmp_path / "run")
    run.lock()
    assert main(["federate", "--resume", "run"]) == 2
    assert "another process" in capsys.readouterr().err
    run.unlock()
    assert main(["federate", "--resume", "run", "--workers", "1"]) == 0
