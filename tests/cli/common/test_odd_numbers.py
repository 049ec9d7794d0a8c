from dataclasses import dataclass, field

import pytest

from holdfast.cli.common.arguments import refuse_odd_numbers
from holdfast.cli.main import main
from holdfast.errors import ConfigError
from holdfast.federated import Rounds
from holdfast.training import Training


@dataclass
class Inner:
    lambda_: float = 1.0


@dataclass
class Outer:
    rates: tuple[float, ...] = (0.1,)
    count: int | None = 3
    inner: Inner = field(default_factory=Inner)


def test_numbers_that_are_none_are_refused_wherever_they_stand():
    refuse_odd_numbers(Outer())
    for wrong, says in (
        (Outer(rates=(0.1, float("nan"))), "rates is nan; give a finite number"),
        (Outer(inner=Inner(float("-inf"))), "lambda is -inf"),
        (Outer(count=2**63), "count has more than 64 bits"),
    ):
        with pytest.raises(ConfigError, match=says):
            refuse_odd_numbers(wrong)


@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
@pytest.mark.parametrize(
    "words",
    [
        ("fit", "--learning-rate"),
        ("fit", "--weight-decay"),
        ("fit", "--checkpoint-seconds"),
        ("fit", "--clip-norm"),
        ("federate", "--learning-rate"),
        ("federate", "--malicious"),
    ],
)
def test_no_command_trains_with_such_a_number(words, value, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*words, value]) == 2
    error = capsys.readouterr().err
    assert error.startswith("holdfast: ") and error.count("\n") == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay", "checkpoint_seconds"])
def test_settings_in_python_are_finite_too(name):
    for value in (float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=name):
            Training(**{name: value})
    with pytest.raises(ConfigError, match="learning_rate"):
        Rounds(learning_rate=float("inf"))
    with pytest.raises(ConfigError, match="weight_decay"):
        Training(weight_decay=-1)
    with pytest.raises(ConfigError, match="epoch_size"):
        Training(epoch_size=0)


def test_a_name_too_long_for_a_file_is_a_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (("fit", "--data"), ("fit", "--config"), ("fit", "--resume"), ("report",)):
        assert main([*words, "x" * 20_000]) == 2
        assert len(capsys.readouterr().err) < 1_300
