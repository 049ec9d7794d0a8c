"""Models of a user's own through whole commands."""

import pytest

from holdfast.cli.main import main
from tests.models.own import own  # noqa: F401

SHORT = ["--epochs", "1", "--threads", "1"]


def fit(*words):
    return main(["fit", "--data", "coloured-digits", *SHORT, *words])


def test_fit_says_what_it_made_and_leaves_a_run_that_can_be_audited(own, capsys):  # noqa: F811
    assert fit("--model", f"{own}.net:Net", "--model-args", "hidden=4", "widths=[3]", "--out", "run") == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line == (
        f"model: {own}.net:Net(hidden=4, widths=[3]; from the data input_shape=(3, 10, 10), n_classes=2), 1,227 "
        "parameters, head 'classifier' (Linear 3 -> 2), found by the name 'classifier'"
    )
    assert main(["audit", "groups", "--run", "run", "--out", "page"]) == 0
    assert f"model: {own}.net:Net(hidden=4, widths=[3]; from" in capsys.readouterr().out
    assert main(["report", "run"]) == 0


def test_no_head_is_said_where_none_is_needed_and_refused_before_training_where_one_is(own, capsys, tmp_path):  # noqa: F811
    assert fit("--model", f"{own}.net:Scaled", "--out", "plain") == 0
    assert "no head: the layer 'classifier' differs" in capsys.readouterr().out
    assert fit("--model", f"{own}.net:Scaled", "--method", "dfr-val", "--out", "refit") == 2
    assert "dfr-val needs the last linear layer of the model: the layer" in capsys.readouterr().err
    assert not (tmp_path / "refit").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "{own}.net:Fails"], "can't take inputs of shape (2, 3, 10, 10), float32: AttributeError"),
        (["--model", "{own}.net:exact"], "must be told 'blocks'"),
        (["--model", "{own}.net:Net", "--head", "nowhere"], "no part named 'nowhere'"),
        (
            ["--model", "{own}.net:Net", "--model-args", "n_classes=3"],
            "gives 3 outputs for each example, more than the 2",
        ),
        (["--device", "cuda:99"], "can't compute on the device 'cuda:99'"),
        (["--device", "abacus"], "can't compute on the device 'abacus'"),
    ],
)
def test_mistakes_are_a_sentence_and_leave_nothing_behind(own, capsys, tmp_path, words, message):  # noqa: F811
    assert fit(*(word.format(own=own) for word in words), "--out", "run") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_federation_trains_a_model_of_ones_own_that_returns_an_object(own, capsys):  # noqa: F811
    short = ["--rounds", "2", "--model-args", "hidden=4", "--out", "run", "--executor", "serial"]
    assert main(["federate", "--model", f"{own}.net:Logits", *short]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(
        f"model: {own}.net:Logits(hidden=4; from the data input_shape=(1, 8, 8), n_classes=10), 310 "
    )
    assert main(["federate", "--model", f"{own}.net:Fails", "--rounds", "1", "--out", "fails"]) == 2


def test_an_audit_names_its_model_and_refuses_a_device_that_is_not_there(own, capsys):  # noqa: F811
    model = ["--model", f"{own}.net:Net", "--model-args", "hidden=4", "--epochs", "2"]
    assert main(["audit", "poison", *model, "--start", "1", "--out", "a"]) == 0
    assert capsys.readouterr().out.startswith(f"model: {own}.net:Net(hidden=4; from")
    for audit in ("poison", "groups"):
        assert main(["audit", audit, *model, "--device", "abacus", "--out", "b"]) == 2
        assert "can't compute on the device 'abacus'" in capsys.readouterr().err
    assert main(["audit", "groups", "--run", "x", *model[:4]]) == 2
    assert "--model and --model-args would change nothing" in capsys.readouterr().err
