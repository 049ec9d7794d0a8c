"""What is secret is its owner's alone."""

from __future__ import annotations

import os
import stat

import pytest

from holdfast.errors import FederationError
from holdfast.integrations.flower.nodes.client_state import ClientMemory, ClientStates
from holdfast.integrations.flower.operation.private import close_to_others, private_files, private_folder, write_secret


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_folders_that_others_could_read_are_closed(tmp_path):
    inner = tmp_path / "state" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("secret")
    (inner / "link").symlink_to("/etc/hostname")
    assert close_to_others(tmp_path / "state") == 3
    assert [mode(path) for path in (tmp_path / "state", inner, inner / "file")] == [0o700, 0o700, 0o600]
    assert close_to_others(tmp_path / "state") == 0


def test_what_is_made_meanwhile_is_private_and_afterwards_is_not(tmp_path):
    with private_files():
        (tmp_path / "inside").write_text("")
    (tmp_path / "outside").write_text("")
    assert (mode(tmp_path / "inside"), mode(tmp_path / "outside")) == (0o600, 0o644)


def test_a_private_folder_is_made_or_repaired(tmp_path):
    (tmp_path / "wide").mkdir()
    assert mode(private_folder(tmp_path / "wide")) == 0o700
    assert mode(private_folder(tmp_path / "new" / "deep")) == 0o700


def test_a_secret_is_never_written_over(tmp_path):
    write_secret(tmp_path / "secret", b"one")
    assert mode(tmp_path / "secret") == 0o600
    with pytest.raises(FederationError, match="already"):
        write_secret(tmp_path / "secret", b"two")
    assert (tmp_path / "secret").read_bytes() == b"one"


def test_personal_models_are_private_whoever_runs_the_node(tmp_path):
    """Also under Flower's own SuperNode, which knows nothing of a umask."""
    (tmp_path / "state").mkdir()
    states = ClientStates(tmp_path / "state")
    states.keep(3, 0, ClientMemory({}, 2))
    found = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert len(found) == 3
    assert all(mode(path) & 0o077 == 0 for path in found)
