"""A SuperLink whose Control API asks for the operator's token.

Flower's own distribution has one way of authenticating those who start runs and register nodes, which is not to. A
loopback address keeps the network out, but every user of the machine reaches it. So the SuperLink is given a plugin of
Flower's own kind (`ControlAuthnPlugin`) that compares a token from a file which only the operator can read.
"""

from __future__ import annotations

import hmac
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.supercore.auth.typing import AccountInfo
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli import flower_superlink as command


class OperatorToken(NoOpControlAuthnPlugin):
    """Lets the one in who has the token; there is one account."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def validate_tokens_in_metadata(
        self, metadata: Sequence[tuple[str, str | bytes]]
    ) -> tuple[bool, AccountInfo | None]:
        """Whether the token is right, compared in a time that tells nothing about it."""
        given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
        if not hmac.compare_digest(given if isinstance(given, bytes) else given.encode(), self._token):
            return False, None
        return super().validate_tokens_in_metadata(metadata)

    def refresh_tokens(self, metadata: Sequence[tuple[str, str | bytes]]) -> Any:
        """There is nothing to refresh."""
        valid, account = self.validate_tokens_in_metadata(metadata)
        return (metadata, account) if valid else (None, None)


def main(token_file: Path, arguments: Sequence[str]) -> None:
    """Be the SuperLink; what it writes is its user's alone."""
    os.umask(0o077)
    plugin = OperatorToken(token_file.read_text().strip())
    vars(sys.modules[command.__module__])["load_control_authn_plugin"] = lambda: plugin
    sys.argv = ["flower-superlink", *arguments]
    command()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
