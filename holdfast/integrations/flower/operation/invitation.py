"""What a federation tells those who may join it: one file, which nothing secret is in.

It has the certificate by which a node knows the server, the charter (model, schema, sizes) and the options of training.
A node does what its invitation says and nothing else: orders of a server that has changed its mind are refused, with
the names of what differs. Its digest is short enough to be compared on the telephone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, FederationError
from holdfast.files import plain_values, write_atomically
from holdfast.integrations.flower.charter import Charter
from holdfast.integrations.flower.settings import FlowerSettings

FORMAT = "holdfast-invitation-1"
_MOST_BYTES = 32 * 2**20
#: Options that are the server's own business: they change nothing of what a node does or gives away.
_SERVERS = frozenset(["rounds", "cohort", "sampling", "evaluate_every", "aggregate", "malicious_known", "out", "track"])


def is_servers_own(option: str) -> bool:
    """Whether an option, or the section of one, concerns the server alone: rounds, waiting, aggregation."""
    from holdfast.federated.aggregation import AGGREGATORS  # noqa: PLC0415 - bring torch, and admitting needs none
    from holdfast.federated.expectation import Expectation  # noqa: PLC0415

    waiting = {f.name for settings in (FlowerSettings, Expectation) for f in fields(settings)}
    return option in _SERVERS or option in waiting or option in AGGREGATORS


@dataclass(frozen=True)
class Invitation:
    """What a node needs in order to join.

    Attributes:
        charter: model, schema and sizes.
        options: of `holdfast federate`, plain values.
        certificate: of the authority that signed the server's, PEM.
    """

    charter: Charter
    options: Mapping[str, Any]
    certificate: str

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits by which two people compare what they hold."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def check_order(self, options: Mapping[str, Any], charter: str) -> None:
        """Refuse an order that goes beyond the invitation.

        Args:
            options: of the order.
            charter: of the order, as JSON.

        Raises:
            FederationError: which names what differs.
        """
        asked, promised = plain_values(dict(options)), dict(self.options)
        names = sorted(set(asked) | set(promised))
        other = [name for name in names if not is_servers_own(name) and asked.get(name) != promised.get(name)]
        if not charter or Charter.from_json(charter).digest != self.charter.digest:
            other.append("charter")
        if other:
            raise FederationError(
                f"the server orders another {', '.join(map(str, other))} than the invitation has; this node does what "
                "it was invited to, so ask the operator for a new invitation if that is meant"
            )

    # ---------------------------------------------------------------------------------------------- files

    def to_json(self) -> str:
        """The text of the file."""
        content = {
            "format": FORMAT,
            "certificate": self.certificate,
            "charter": self.charter.as_dict(),
            "options": plain_values(dict(self.options)),
        }
        return json.dumps(content, indent=1, sort_keys=True)

    def save(self, path: Path) -> None:
        """Write the file."""
        write_atomically(path, self.to_json().encode())

    @classmethod
    def load(cls, path: Path) -> Invitation:
        """Read the file.

        Raises:
            ConfigError: if it is no invitation.
        """
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError("it is too large")
            content = json.loads(path.read_text("utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r:.40}")
            options, certificate = content["options"], content["certificate"]
            if not isinstance(options, dict) or not isinstance(certificate, str):
                raise TypeError("its options aren't a mapping, or its certificate isn't text")
            return cls(Charter.from_json(json.dumps(content["charter"])), options, certificate)
        except OSError as error:
            raise ConfigError(f"the invitation {path} can't be read ({error.strerror}); ask for it again") from error
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{path} isn't an invitation to a federation ({error}); ask the operator for it"
            ) from error
