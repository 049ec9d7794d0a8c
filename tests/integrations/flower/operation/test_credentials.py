"""Keys and certificates."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.integrations.flower.operation.credentials import make_authority, make_node_key


def test_keys_are_private_and_never_written_over(tmp_path):
    make_authority(tmp_path, ["superlink.example.org", "10.0.0.1"])
    make_node_key(tmp_path / "node")

    assert {oct((tmp_path / name).stat().st_mode & 0o777) for name in ("superlink.key", "node")} == {"0o600"}
    assert (tmp_path / "node.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    with pytest.raises(ConfigError, match="authority"):
        make_authority(tmp_path, ["superlink.example.org"])
    with pytest.raises(ConfigError, match="key"):
        make_node_key(tmp_path / "node")
