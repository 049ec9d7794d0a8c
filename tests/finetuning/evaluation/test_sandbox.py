import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.finetuning.evaluation import run_program, sandbox
from holdfast.finetuning.evaluation.sandbox import Bubblewrap, Container, Limits, find_sandbox

BWRAP = Bubblewrap("/usr/bin/bwrap", "/usr/bin/prlimit")
PODMAN = Container("/usr/bin/podman", "maths:1")


@pytest.fixture(autouse=True)
def tried_anew():
    sandbox._tried.cache_clear()
    yield
    sandbox._tried.cache_clear()


def options(command: list[str], name: str) -> list[str]:
    """What is given after each mention of an option."""
    return [command[place + 1] for place, word in enumerate(command) if word == name]


def test_bubblewrap_is_given_only_the_interpreter_and_the_program_and_all_of_it_to_read(tmp_path: Path) -> None:
    command = BWRAP.command(tmp_path, Limits(2.5, 512))
    assert {"--unshare-user", "--unshare-all", "--clearenv", "--die-with-parent", "--new-session"} < set(command)
    assert options(command, "--cap-drop") == ["ALL"]
    assert not {"--bind", "--dev-bind", "--proc", "--share-net", "--bind-try", "--tmpfs"} & set(command)
    assert options(command, "--remount-ro") == ["/dev", "/"]
    assert options(command, "--ro-bind") == [str(tmp_path)]
    bound = options(command, "--ro-bind-try")
    assert sys.base_prefix in bound
    assert not {"/", "/proc", "/etc", "/home", "/root", "/tmp", "/var", str(Path.home())} & set(bound)
    after = command[command.index("/usr/bin/prlimit") :]
    assert {f"--as={512 * 2**20}", "--cpu=4", "--nproc=1", "--fsize=0", "--core=0"} < set(after)
    assert after[-1] == "program.py"


def test_a_container_has_no_network_nothing_to_write_to_and_limits(tmp_path: Path) -> None:
    command = PODMAN.command(tmp_path, Limits(2.5, 512))
    assert command[:3] == ["/usr/bin/podman", "run", "--rm"]
    assert options(command, "--network") == ["none"]
    assert "--read-only" in command
    assert options(command, "--cap-drop") == ["ALL"]
    assert options(command, "--security-opt") == ["no-new-privileges"]
    assert options(command, "--volume") == [f"{tmp_path}:/program:ro"]
    assert options(command, "--memory") == options(command, "--memory-swap") == ["512m"]
    assert options(command, "--pids-limit") == ["32"]
    assert options(command, "--pull") == ["never"]
    assert command[command.index("maths:1") :][:4] == ["maths:1", "-s", "KILL", "2.5"]
    assert options(command, "--entrypoint") == ["timeout"]
    assert not any("HOLDFAST" in word or "HOME" in word for word in command)


def test_without_any_sandbox_the_refusal_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"bwrap: not installed; podman: not .* install bubblewrap, or name an image"):
        run_program("print(5)")


def test_a_container_runtime_needs_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "docker" else None)
    monkeypatch.delenv(sandbox.IMAGE, raising=False)
    with pytest.raises(ConfigError, match="docker: HOLDFAST_SANDBOX_IMAGE names no image"):
        find_sandbox()
    monkeypatch.setenv(sandbox.IMAGE, "maths:1")
    monkeypatch.setattr(sandbox, "_refusal", lambda tried: "")
    assert find_sandbox() == Container("/usr/bin/docker", "maths:1")


def test_a_sandbox_that_does_not_work_here_is_passed_over_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sandbox.shutil, "which", {"bwrap": str(broken), "prlimit": "/usr/bin/prlimit"}.get)
    with pytest.raises(ConfigError, match="bwrap: No permissions to create new namespace; podman: not installed"):
        find_sandbox()
