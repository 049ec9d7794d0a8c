import sys
from pathlib import Path

import pytest
from torch import nn

from holdfast import own_code
from holdfast.errors import ConfigError
from holdfast.models.own_models import own_factory
from holdfast.own_code import told_as_sentence
from tests.models.own import own  # noqa: F401


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("class Net(\n", r"bad.py, line 1 is not valid Python"),
        ("import not_there_at_all\n", r"ModuleNotFoundError: No module named 'not_there_at_all' \(.*bad.py, line 1\)"),
        ("\nx = 1 / 0\n", r"ZeroDivisionError: division by zero \(.*bad.py, line 2\)"),
        ("import sys\nsys.exit(1)\n", r"it ends the program \(.*bad.py, line 2\)"),
        ("def deep():\n    return deep()\ndeep()\n", r"RecursionError"),
        ("x = '\x00'\n", r"bad.py is not valid Python \(source code string cannot contain null bytes\)"),
    ],
)
def test_a_module_that_fails_is_a_sentence_with_its_line(own, content, message):  # noqa: F811
    (Path(own) / "bad.py").write_text(content)
    with pytest.raises(ConfigError, match=f"{own}.bad can't be imported.*{message}") as told:
        own_factory(f"{own}.bad:Net")
    assert told.value.__cause__ is not None


def test_a_module_that_is_not_there_offers_the_nearest(own):  # noqa: F811
    with pytest.raises(ConfigError, match=rf"no module '{own}.nett' .* did you mean 'net'"):
        own_factory(f"{own}.nett:Net")
    with pytest.raises(ConfigError, match=rf"no module '{own}x' .* did you mean '{own}'"):
        own_factory(f"{own}x.net:Net")


def test_a_relative_import_works_in_its_package_and_is_explained_outside(own, monkeypatch):  # noqa: F811
    (Path(own) / "user.py").write_text("from .net import Net\n")
    assert issubclass(own_factory(f"{own}.user:Net"), nn.Module)
    monkeypatch.chdir(own)
    with pytest.raises(ConfigError, match=f"name it from the folder above: --model {own}.user:Net"):
        own_factory("user:Net")
    sys.modules.pop("user", None)


@pytest.mark.parametrize("name", ["pack/net.py:Net", "net.py:Net", "./pack/net.py:Net"])
def test_a_file_is_told_its_module(name):
    with pytest.raises(ConfigError, match=r"named by its module, not by a file; give --model (pack\.)?net:Net"):
        own_factory(name)


@pytest.mark.parametrize("name", [":", "a:", ":b", "a b:c", "a:b.c", "a..b:c", "a:b:c", "a-b:C"])
def test_what_names_nothing_is_refused(name):
    with pytest.raises(ConfigError, match=r"doesn't name a model"):
        own_factory(name)


@pytest.mark.parametrize("name", ["os:system", "subprocess:call", "shutil:rmtree", "torch:load", "builtins:eval",
                                  "random:seed", "yaml:unsafe_load"])  # fmt: skip
def test_a_function_of_an_installed_package_that_promises_no_model_is_never_called(name):
    with pytest.raises(ConfigError, match=r"doesn't say that it returns a nn.Module"):
        own_factory(name)


def test_an_installed_class_or_a_function_that_promises_a_model_is_taken(own, monkeypatch):  # noqa: F811
    assert own_factory("torch.nn:Linear") is nn.Linear
    (Path(own) / "typed.py").write_text(
        "from __future__ import annotations\nfrom torch import nn\n"
        "def makes() -> nn.Linear: ...\ndef says_nothing(): ...\ndef other() -> int: ...\n"
    )
    assert callable(own_factory(f"{own}.typed:says_nothing"))
    monkeypatch.setattr(own_code, "_below_installed", lambda file: True)
    assert callable(own_factory(f"{own}.typed:makes"))
    for name in ("says_nothing", "other"):
        with pytest.raises(ConfigError, match=r"doesn't say that it returns a nn.Module"):
            own_factory(f"{own}.typed:{name}")


def test_the_current_directory_is_searched_first_and_stays_last_for_imports_in_a_forward_pass(own):  # noqa: F811
    own_factory(f"{own}.net:Net")
    assert sys.path[-1] == str(Path.cwd())


def test_errors_of_the_library_and_interrupts_pass():
    with pytest.raises(ConfigError, match=r"^mine$"), told_as_sentence("what"):
        raise ConfigError("mine")
    with pytest.raises(KeyboardInterrupt), told_as_sentence("what"):
        raise KeyboardInterrupt
