"""Every code block of the documentation runs.

- ``python`` blocks of a page share a namespace and an empty folder, and run in the order of the page.
- ``console`` blocks: each line ``$ holdfast ...`` runs in that folder and must succeed; the lines below it are part of
  what it prints. Numbers may differ from machine to machine, so only the words between them are compared.
- ``text`` blocks right behind a ``python`` block are what it prints, compared in the same way.
- ``sh`` blocks hold what takes minutes, real data or another shell: their ``holdfast ...`` lines are parsed, not run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.cli.commands.audit.arrays import parse_arrays
from holdfast.cli.commands.audit.groups import parse_groups
from holdfast.cli.commands.audit.multimodal import parse_multimodal
from holdfast.cli.commands.audit.poison import parse_poison
from holdfast.cli.commands.federation import options as federate_options
from holdfast.cli.commands.federation.command import COMMANDS as FEDERATION
from holdfast.cli.commands.fit import task_of
from holdfast.cli.commands.fit_clip import parse_clip
from holdfast.cli.commands.select.options import parse_select
from holdfast.cli.commands.sweep.command import parse_sweep
from holdfast.cli.common import options
from holdfast.cli.main import COMMANDS, main
from holdfast.data import DATASETS
from holdfast.errors import ConfigError
from holdfast.papers.engine.catalog import PAPERS, find
from tests.docs.pages import PAGES, Block, blocks, name_of

LANGUAGES = {"python", "console", "sh", "text", "yaml", "csv", "toml"}
OPTIONAL = {"onnxruntime", "lightning", "transformers", "accelerate", "tensorboard", "mlflow", "flwr"}

#: The functions that a command's options are read off.
PARSERS = {
    "audit groups": parse_groups,
    "audit poison": parse_poison,
    "audit arrays": parse_arrays,
    "audit multimodal": parse_multimodal,
    "select": parse_select,
    "sweep": parse_sweep,
}
FUNCTIONS = {
    "demo": ("demo",),
    "data": ("list_", "info", "get_", "check_"),
    "runs": ("list_", "compare"),
    "audit verdict": ("write_verdict",),
    "report": ("report",),
    "predict": ("predict",),
    "evaluate": ("evaluate",),
    "export": ("export",),
    "reproduce": ("reproduce",),
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    with patch.dict(DATASETS):
        yield


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_code_block_runs(page, capsys, monkeypatch):
    namespace = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        where = f"{name_of(page)}:{block.line}"
        if block.language == "python":
            run_python(block, page, namespace)
            printed = capsys.readouterr().out
        elif block.language == "console":
            run_console(block, where, capsys)
        elif block.language == "sh":
            for words in commands(block.body):
                parses(words, where, monkeypatch)
        elif block.language == "text" and block.follows == "python":
            expect_lines(block.body, printed, where)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_its_language(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES


def test_a_page_says_how_to_install_what_its_blocks_import_beyond_our_dependencies():
    extras = {"flwr": "flower", "peft": "llm", "transformers": "llm"}
    always = {
        "torch",
        "numpy",
        "sklearn",
        "safetensors",
        "pyarrow",
        "rich",
        "PIL",
        "yaml",
        "holdfast",
        *sys.stdlib_module_names,
    }
    silent = []
    for page in PAGES:
        code = "\n".join(block.body for block in blocks(page) if block.language == "python")
        imported = {
            match.partition(".")[0] for match in re.findall(r"^ *(?:from|import) +([\w.]+)", code, re.MULTILINE)
        }
        for name in imported - always - {"my_package"}:
            said = re.findall(r"pip install .*|`holdfast\[.*\]`", page.read_text())
            if not any(name in line or f"[{extras.get(name)}]" in line for line in said):
                silent.append(f"{name_of(page)} does not say how to install {name}")
    assert not silent


@pytest.mark.parametrize(
    ("shown", "printed", "agree"),
    [
        ("worst: 11.2%", "first\n worst:   9.0% \nlast", True),
        ("worst: 11.2%", "best: 11.2%", False),
        ("one\ntwo", "two\none", False),
        ("one\n...\ntwo", "one\nmore\ntwo", True),
        ("│ a │ 1 │", "│ a       │   1234 │", True),
    ],
)
def test_shown_output_is_compared_by_its_words_in_order(shown, printed, agree):
    if agree:
        expect_lines(shown, printed, "here")
    else:
        with pytest.raises(AssertionError, match="here"):
            expect_lines(shown, printed, "here")


@pytest.mark.parametrize(
    "line", ["fitt --epochs 2", "fit --epoch 2", "fit --method earm", "runs lst", "reproduce spare/table9", "data info"]
)
def test_a_command_that_does_not_parse_is_noticed(line, monkeypatch, capsys):
    with pytest.raises((AssertionError, ConfigError)):
        parses(shlex.split(line), "here", monkeypatch)


def run_python(block: Block, page: Path, namespace: dict) -> None:
    code = "\n" * (block.line - 1) + block.body
    try:
        exec(compile(code, str(page), "exec", dont_inherit=True), namespace)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in OPTIONAL:
            pytest.skip(f"{error.name} is not installed")
        raise


def run_console(block: Block, where: str, capsys) -> None:
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)
    assert not parts[0].strip() and len(parts) > 1, f"{where} must begin with a `$ holdfast` line"
    for part in parts[1:]:
        (words,), shown = commands(part, first_only=True), _below_command(part)
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        assert code in {0, None}, f"{where}: holdfast {shlex.join(words)} ended with {code}: {captured.err}"
        expect_lines(shown, captured.out, where)


def commands(text: str, *, first_only: bool = False) -> list[list[str]]:
    """The arguments of each ``holdfast ...`` line; a backslash continues a line, a # begins a comment."""
    joined = text.replace("\\\n", " ")
    lines = joined.splitlines()[:1] if first_only else joined.splitlines()
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words and Path(words[0]).name == "holdfast":
            found.append(words[1:])
        else:
            assert not first_only, f"only holdfast commands run here, not {line!r}; use an sh block"
    return found


def _below_command(part: str) -> str:
    lines = part.splitlines()
    while lines and lines[0].endswith("\\"):
        lines = lines[1:]
    return "\n".join(lines[1:])


def expect_lines(shown: str, printed: str, where: str) -> None:
    """Every line of `shown` is a line of `printed`, in this order, numbers and spaces aside; ``...`` is skipped."""
    actual = iter([_words(line) for line in printed.splitlines()])
    for line in shown.splitlines():
        wanted = _words(line)
        if wanted in {"", "..."}:
            continue
        assert any(wanted == line_ for line_ in actual), f"{where}: the output has no line {line!r}, it is:\n{printed}"


def _words(line: str) -> str:
    line = re.sub(r"[-+]?\d+(,\d{3})*(\.\d+)?", "#", line)
    return re.sub(r"([─━])\1*", r"\1", re.sub(r"\s+", " ", line)).strip()


def parses(words: list[str], where: str, monkeypatch) -> None:
    """Check the options of a command without running it."""
    command, arguments = words[0], words[1:]
    assert command in COMMANDS, f"{where}: there is no command {command!r}"
    if "--help" in arguments:
        return
    try:
        if command in ("fit", "federate"):
            parse_fit = parse_clip if command == "fit" and task_of(arguments) == "clip" else options.parse
            (parse_fit if command == "fit" else federate_options.parse)(arguments)
            return
        if command == "federation":
            federation_parses(arguments, where)
            return
        if command == "audit":
            command, arguments = f"{command} {arguments[0]}", arguments[1:]
        if command in PARSERS:
            PARSERS[command](arguments)
            return
        place = "audit.verdict" if command == "audit verdict" else COMMANDS[command][1]
        module = importlib.import_module(f"holdfast.cli.commands.{place}")
        run = module.audit_verdict if command == "audit verdict" else module.main
        called = []
        with monkeypatch.context() as recorded:
            for name in FUNCTIONS[command]:
                recorded.setattr(module, name, _recorder(getattr(module, name), called))
            run(arguments)
    except SystemExit as end:
        raise AssertionError(f"{where}: holdfast {shlex.join(words)} doesn't parse") from end
    assert called, f"{where}: holdfast {shlex.join(words)} calls nothing"
    if command == "reproduce" and (named := called[0].get("name")) and named not in PAPERS:
        find(named)


def federation_parses(arguments: list[str], where: str) -> None:
    """These run as they stand in tests/integrations/flower/operation; here their options are looked up in the help."""
    assert arguments[0] in FEDERATION, f"{where}: there is no `holdfast federation {arguments[0]}`"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        FEDERATION[arguments[0]](["--help"])
    if arguments[0] not in ("init", "run"):  # which take the options of `federate` as well
        unknown = [word for word in arguments if word.startswith("--") and word not in printed.getvalue()]
        assert not unknown, f"{where}: `holdfast federation {arguments[0]}` has no {unknown[0]}"


def _recorder(function, called):
    @functools.wraps(function)
    def record(*args, **options):
        names = function.__code__.co_varnames
        called.append(dict(zip(names, args, strict=False)) | options)
        return 0

    return record
