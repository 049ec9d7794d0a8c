"""The folder that `holdfast federation init` makes on the server's machine: where everything is, and how to read it.

========================  ==========================================================================================
``federation.json``       addresses, and which run directory is the federation's
``keys/``                 the authority's certificate, the SuperLink's certificate and key
``operator.token``        opens the SuperLink's Control API
``superexec.secret``      hands out the ServerApp
``roster.json``           who may take part
``invitation.json``       for the nodes; nothing in it is secret
``proxy.conf``            of nginx
========================  ==========================================================================================
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.integrations.flower.operation.access import Access
from holdfast.integrations.flower.operation.invitation import Invitation
from holdfast.integrations.flower.roster import Roster

FILE = "federation.json"
_FORMAT = "holdfast-federation-1"


@dataclass(frozen=True)
class FederationFolder:
    """Where a federation's files are.

    Attributes:
        path: the folder, absolute.
        listen: address and port of the proxy.
        superlink: address and port of the SuperLink, on this machine.
        hosts: names under which nodes reach the server.
    """

    path: Path
    listen: str
    superlink: str
    hosts: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> FederationFolder:
        """The federation in a folder.

        Raises:
            ConfigError: if there is none.
        """
        file = path / FILE
        try:
            content = json.loads(file.read_text("utf-8"))
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r:.40}")
            return cls(path.resolve(), str(content["listen"]), str(content["superlink"]), tuple(content["hosts"]))
        except OSError as error:
            raise ConfigError(
                f"{path} has no federation ({error.strerror}); make one: holdfast federation init"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{file} can't be used ({error}); it was written by another program") from error

    def to_json(self) -> str:
        """The text of ``federation.json``."""
        content = {"format": _FORMAT, "listen": self.listen, "superlink": self.superlink, "hosts": list(self.hosts)}
        return json.dumps(content, indent=1)

    @property
    def keys(self) -> Path:
        """Certificates and the SuperLink's key."""
        return self.path / "keys"

    @property
    def token_file(self) -> Path:
        """The operator's token."""
        return self.path / "operator.token"

    @property
    def secret_file(self) -> Path:
        """The secret of those who may take over a ServerApp."""
        return self.path / "superexec.secret"

    @property
    def proxy_file(self) -> Path:
        """The configuration of nginx."""
        return self.path / "proxy.conf"

    @property
    def roster_file(self) -> Path:
        """Who may take part."""
        return self.path / "roster.json"

    @property
    def invitation_file(self) -> Path:
        """What nodes are given."""
        return self.path / "invitation.json"

    @property
    def run(self) -> Path:
        """The run directory: rounds, faults, report."""
        return self.path / "run"

    def invitation(self) -> Invitation:
        """What nodes are given."""
        return Invitation.load(self.invitation_file)

    def roster(self) -> Roster | None:
        """Who may take part; None while nobody is admitted."""
        return Roster.load(self.roster_file) if self.roster_file.exists() else None

    def access(self) -> Access:
        """How to speak to the SuperLink.

        Raises:
            ConfigError: if this user may not.
        """
        try:
            token, secret = self.token_file.read_text().strip(), self.secret_file.read_bytes()
            return Access(self.superlink, (self.keys / "ca.crt").read_bytes(), token, secret)
        except OSError as error:
            raise ConfigError(f"{error.filename} can't be read ({error.strerror}); be the user who made it") from error
