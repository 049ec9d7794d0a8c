"""Configuration files that would fill the memory, never end or run something are refused with a sentence."""

import pytest

from holdfast.errors import ConfigError, DataError, HoldfastError, nearest
from holdfast.files import read_mapping, read_yaml

BOMB = "x0: &x0 [a, a, a, a, a, a, a, a, a]\n" + "".join(
    f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "x0: &x0 {a: 1}\n" + "".join(f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB, "aliases stand for more than 100,000 values"),
        (MERGES, "aliases stand for more than 100,000 values"),
        ("a: &x [*x]\n", "without end"),
        ("a: &x {b: *x}\n", "without end"),
        ("a: " + "[" * 60 + "]" * 60, "more than 50 deep"),
        ("a: " + "[" * 9_000 + "]" * 9_000, "deep"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML of plain values"),
        ("a: !!int x", "not valid YAML"),
        ("a: !!timestamp x", "not valid YAML"),
        ("a: 2026-02-30", "not valid YAML"),
        ("a: " + "9" * 5_000, "not valid YAML"),
        ("a: *unknown", "not valid YAML"),
        ("a: 1\n--- \nb: 2", "not valid YAML"),
        ("\ta: 1", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_plain_values_is_refused_at_once(tmp_path, text, says):
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says) as raised:
        read_yaml(tmp_path / "run.yaml")
    assert len(str(raised.value)) < 700 and str(raised.value).isprintable()


@pytest.mark.parametrize(
    "text", ["", "- a\n- b", "word", "1: 2", "? [a]\n: 1", "true: 1", "'': 1", "a: {1: 2}", "~: 1"]
)
def test_options_have_names(tmp_path, text):
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        read_mapping(tmp_path / "run.yaml")


def test_aliases_that_end_are_what_they_stand_for(tmp_path):
    (tmp_path / "run.yaml").write_text("a: &x {b: [1, 2]}\nc: *x\nd: {<<: *x, e: .5}\n")
    assert read_mapping(tmp_path / "run.yaml") == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": {"b": [1, 2], "e": 0.5}}


def test_a_message_is_a_line_of_bounded_length_that_keeps_its_beginning_and_its_end():
    error = DataError(f"{'x' * 100_000}\x1b[31m is wrong\nin two lines; give y")
    assert len(str(error)) <= 1_200 and str(error).isprintable()
    assert str(error).startswith("xxx") and str(error).endswith("give y")
    assert str(HoldfastError("a sentence")) == "a sentence" and isinstance(error, ValueError)
    assert "did you mean 'epochs'" in nearest("epoch", ["epochs"]) and nearest("x" * 10**6, ["epochs"])
