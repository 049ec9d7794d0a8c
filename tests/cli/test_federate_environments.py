"""Clients in two environments on the command line: shortcuts, policies inside clients, and what is reported."""

import json
from pathlib import Path

import pytest

from holdfast.cli.commands.federation.options import parse
from holdfast.cli.main import main
from holdfast.errors import ConfigError
from holdfast.federated import Transferability, WithPolicy
from holdfast.spurious import Spare

QUICK = ["federate", "--data", "painted-digits", "--painted-digits.clients", "3", "--rounds", "2", "--cohort", "3",
         "--executor", "serial"]  # fmt: skip

pytestmark = pytest.mark.usefixtures("somewhere_else")


def test_shortcuts_are_reported_at_home_and_elsewhere(tmp_path: Path, capsys):
    main([*QUICK, "--personalize", "ft+transferability", "--ft.epochs", "1", "--transferability.epochs", "1",
          "--transferability.adversarial", "1", "--transferability.weights", "1", "--out", "run"])  # fmt: skip
    printed = capsys.readouterr().out
    assert "at home" in printed and "disparity" in printed
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert set(results["environments"]) == {"global", "ft", "transferability"}
    for numbers in results["environments"].values():
        assert numbers["average"] == pytest.approx(numbers["worst"] + abs(numbers["disparity"]) / 2)
        assert numbers["client_gap"] >= abs(numbers["disparity"]) - 1e-9
    ours = results["adaptation"]["transferability"]
    assert 0 < ours["epsilon"] <= 8 / 255 and len(ours["curves"]["accuracy"]) == 5
    assert sum(ours["ratios"]) > 0
    page = (tmp_path / "run" / "report.html").read_text()
    for said in ("At home and elsewhere", "Along fine-tuning", "What still transfers", "How gradients change"):
        assert said in page
    assert (tmp_path / "run" / "adversarial.png").read_bytes().startswith(b"\x89PNG")
    assert "data:image/png;base64," in page


def test_a_strict_federation_whose_attack_fools_nobody_fails(capsys):
    weak = [*QUICK, "--rounds", "1", "--personalize", "transferability", "--transferability.epochs", "1",
            "--transferability.adversarial", "1", "--transferability.weights", "1", "--transferability.no-search",
            "--transferability.epsilon", "1e-7", "--transferability.attack-steps", "1"]  # fmt: skip
    assert main([*weak, "--strict", "--out", "strict"]) == 3
    assert "This result should not be used, because with a budget of 1e-07 the attack fools" in capsys.readouterr().out


def test_it_goes_on_top_of_a_robustly_aggregated_model_under_attack():
    options = parse([*QUICK[1:], "--attack", "a1", "--malicious", "0.2", "--aggregate", "multi-krum",
                     "--personalize", "transferability"])  # fmt: skip
    assert isinstance(options.personalizers[0], Transferability)
    assert (options.aggregator.label, options.threat.attack.name) == ("multi-krum", "a1")
    assert (options.settings.optimizer, options.personalizers[0].epochs) == ("adam", 5)


def test_methods_of_fit_run_inside_clients(tmp_path: Path):
    main([*QUICK, "--personalize", "spare", "--spare.infer-epoch", "1", "--out", "run"])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert set(results["models"]) == {"global", "spare"}
    options = parse(["--config", "run/config.yaml"])
    assert isinstance(options.personalizers[0], WithPolicy)
    assert options.personalizers[0].policy == Spare(infer_epoch=1)
    with pytest.raises(ConfigError, match="spear"):
        parse(["--personalize", "spear"])


def test_public_weights_are_asked_for_where_the_recipe_names_some(tmp_path: Path):
    assert parse(["--data", "bar"]).choices.weights == "imagenet"
    assert parse(["--data", "bar", "--weights", "mine.pt"]).choices.weights == "mine.pt"
    assert not parse([]).choices.weights
