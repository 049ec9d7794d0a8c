import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from holdfast.cli.commands.federation.options import parse as parse_federate
from holdfast.cli.common.model_options import read_arguments, show_device, write_arguments
from holdfast.cli.common.options import parse
from holdfast.errors import ConfigError

texts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)


@given(st.dictionaries(names, values, max_size=4))
def test_arguments_that_were_read_are_written_and_read_the_same(arguments):
    once = read_arguments(write_arguments(arguments))
    assert read_arguments(write_arguments(once)) == once
    assert once.keys() == arguments.keys()


@pytest.mark.parametrize(
    ("word", "value"),
    [("a=64", 64), ("a=0.5", 0.5), ("a=1e-3", 1e-3), ("a=true", True), ("a=[3, 4]", [3, 4]), ("a=[3,4]", [3, 4]),
     ("a={b: 1, c: [x]}", {"b": 1, "c": ["x"]}), ("a=relu", "relu"), ("a=", None), ("a=null", None), ("a='12'", "12"),
     ("a=2020-01-01", "2020-01-01"), ("a=b=c", "b=c"), ("a=-3", -3), ("a=[1e-3]", [1e-3])],
)  # fmt: skip
def test_values_are_read_as_yaml_reads_them(word, value):
    assert read_arguments([word]) == {"a": value}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hidden"], "'hidden'; give arguments as name=value"),
        (["3=4"], "give arguments as name=value"),
        (["=4"], "give arguments as name=value"),
        (["a=1", "a=2"], "has a twice"),
        (["a=[1"], "not valid YAML"),
        (["a=!!python/object:os.system {}"], "not valid YAML"),
        (["a=.nan"], "with a float"),
        (["a=&x [*x]"], "nested"),
        (["a={1: 2}"], "with a dict"),
        (["a=2020-13-45"], "not valid YAML"),
    ],
)
def test_what_is_no_plain_argument_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        read_arguments(words)


@pytest.mark.parametrize("parsing", [parse, parse_federate])
def test_arguments_go_through_the_command_line_and_configuration_files(parsing, tmp_path):
    typed = ["--model", "a.b:Net", "--model-args", "hidden=64", "widths=[32, 16]", "name=x: y", "--seed", "3"]
    options = parsing(typed)
    expected = {"hidden": 64, "widths": [32, 16], "name": {"x": "y"}}
    assert options.choices.model_args == options.config()["model_args"] == expected
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(options.config()))
    again = parsing(["--config", str(file)])
    assert again.config() == options.config()
    assert parsing(["--config", str(file), "--model-args", "depth=1"]).choices.model_args == {"depth": 1}
    assert parsing(["--config", str(file), "--model-args"]).choices.model_args == {}


def test_a_model_of_ones_own_does_not_start_from_the_weights_of_the_recipes_model():
    recipe = parse(["--data", "waterbirds"])
    assert recipe.choices.weights is not None
    assert parse(["--data", "waterbirds", "--model", "a.b:Net"]).choices.weights is None
    assert parse(["--data", "waterbirds", "--model", "a.b:Net", "--weights", "w.pt"]).choices.weights == "w.pt"


def test_a_gpu_that_is_left_alone_is_mentioned_and_auto_says_what_it_took(monkeypatch, capsys):
    show_device("cpu", Console())
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    show_device("cpu", Console())
    show_device("auto", Console())
    assert capsys.readouterr().out == "device: cpu; --device auto would take cuda\ndevice: cuda\n"
