"""Making a federation's folder: keys, secrets, the invitation, the app, the proxy's file, and what starts it all.

The folder appears as a whole or not at all. Only the invitation is meant for others, and nothing in it is secret.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.files import write_atomically, written_whole
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.operation.credentials import make_authority
from holdfast.integrations.flower.operation.federation_folder import FILE, FederationFolder
from holdfast.integrations.flower.operation.invitation import Invitation
from holdfast.integrations.flower.operation.private import private_files, write_secret
from holdfast.integrations.flower.operation.proxy import proxy_file

_UNIT = """# systemd: copy this to /etc/systemd/system, then: systemctl enable --now holdfast-federation
[Unit]
Description=SuperLink and proxy of a holdfast federation
After=network-online.target

[Service]
ExecStart={python} -m holdfast.cli.main federation serve {folder}
User={user}
Restart=always
RestartSec=5
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={folder}
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""
_COMPOSE = """# HOLDFAST_SOURCE=/path/to/holdfast docker compose up: the same in a container. Only the proxy's port is
# published, so the federation listens on 0.0.0.0; and the SuperLink is the container's, so give other commands there:
# docker compose exec federation holdfast federation run {folder}
# They see this folder alone, so put the keys of nodes that you admit into it.
# Behind a mirror, HOLDFAST_BASE names the base image, and PIP_INDEX_URL and PIP_EXTRA_INDEX_URL where pip looks; with
# the index of torch for CPUs in the latter, the image is some gigabytes smaller.
services:
  federation:
    build:
      dockerfile_inline: |
        FROM ${{HOLDFAST_BASE:-python:3.11-slim}}
        RUN apt-get update && apt-get install -y --no-install-recommends nginx-light && rm -rf /var/lib/apt/lists/*
        COPY --from=holdfast . /holdfast
        ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL
        RUN pip install --no-cache-dir -c /holdfast/constraints.txt /holdfast[flower]
      args: [PIP_INDEX_URL, PIP_EXTRA_INDEX_URL]
      additional_contexts:
        holdfast: ${{HOLDFAST_SOURCE:?the folder with holdfast's pyproject.toml}}
    command: ["holdfast", "federation", "serve", "{folder}"]
    user: "{uid}:{gid}"
    volumes: ["{folder}:{folder}"]
    ports: ["{port}:{port}"]
    restart: always
    read_only: true
    tmpfs: [/tmp]
"""


def found(
    path: Path, *, charter: Charter, options: dict[str, object], hosts: Sequence[str], listen: str, superlink: str
) -> FederationFolder:
    """Write the folder of a new federation.

    Args:
        path: where; must not exist, or be empty.
        charter: model, schema and sizes.
        options: of `holdfast federate`, without what only this machine knows.
        hosts: names and addresses under which nodes reach the server.
        listen: address and port of the proxy.
        superlink: address and port of the SuperLink, a loopback address.

    Raises:
        ConfigError: if there is something at `path`, or it or an address can't be used.
    """
    final = path.resolve()
    if final.exists() and any(final.iterdir()):
        raise ConfigError(f"{path} is not empty; choose another folder for the federation")
    _check_addresses(listen, superlink)
    _check_place(final)
    folder = FederationFolder(final, listen, superlink, tuple(hosts))
    with private_files(), written_whole(final) as place:
        place.mkdir()
        make_authority(place / "keys", [*hosts, superlink.rpartition(":")[0].strip("[]")])
        write_secret(place / "operator.token", secrets.token_hex(32).encode())
        write_secret(place / "superexec.secret", secrets.token_bytes(32))
        certificate = (place / "keys" / "ca.crt").read_text()
        Invitation(charter, options, certificate).save(place / "invitation.json")
        _write_texts(place, folder)
    return folder


def _write_texts(place: Path, folder: FederationFolder) -> None:
    """What names the folder's final place."""
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    known = {"folder": folder.path, "python": sys.executable, "user": _user(), "uid": os.getuid(),
             "gid": os.getgid(), "port": folder.listen.rpartition(":")[2]}  # fmt: skip
    texts = {
        FILE: folder.to_json(),
        "proxy.conf": proxy_file(folder.path, listen=folder.listen, upstream=folder.superlink, name=folder.hosts[0]),
        "holdfast-federation.service": _UNIT.format(**known),
        "compose.yaml": _COMPOSE.format(**known),
    }
    for name, text in texts.items():
        write_atomically(place / name, text.encode())


def _user() -> str:
    """Who founds the federation: by number where the number has no name, as in containers; systemd takes both."""
    import getpass  # noqa: PLC0415
    import os  # noqa: PLC0415

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _check_place(path: Path) -> None:
    """The path stands in files of three programs, each with its own marks for words, variables and ends of lines."""
    if odd := sorted(set(re.sub(r"[\w/.@+-]", "", str(path)))):
        raise ConfigError(
            f"the folder {str(path)!r} has {', '.join(map(repr, odd))} in its path, which nginx, systemd or Compose "
            "read otherwise; choose a path of letters, digits and . _ - + @"
        )


def _check_addresses(listen: str, superlink: str) -> None:
    for option, address in (("--listen", listen), ("--superlink", superlink)):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise ConfigError(f"{option} is {address!r}; give an address and a port, as in 127.0.0.1:8000")
    if superlink.rpartition(":")[0] not in ("127.0.0.1", "[::1]", "localhost"):
        raise ConfigError(f"--superlink is {superlink!r}, which others reach past the proxy; give a port of 127.0.0.1")
    if listen.rpartition(":")[2] == superlink.rpartition(":")[2]:
        raise ConfigError(f"proxy and SuperLink can't share port {listen.rpartition(':')[2]}; give another to one")
