"""Messages to nodes, handed to the SuperLink until it has taken them whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

from holdfast.errors import FederationError

_log = logging.getLogger("holdfast.federated.flower")
#: How often messages are sent that the SuperLink has not taken whole.
_SENDINGS = 5


def push_whole(grid: Any, messages: Sequence[Message], wait: Callable[[], None]) -> list[str]:
    """Hand messages to the SuperLink and return their names.

    One that is killed in the middle has stored parts that it never confirmed, and refuses them when they come again.
    The same messages pushed again are completed under their names; new ones in their place would leave nodes waiting
    for the rest of the old ones.

    Args:
        grid: of the run.
        messages: to nodes.
        wait: waits before the next attempt.

    Raises:
        FederationError: if it takes none of several times.
    """
    for _ in range(_SENDINGS):
        try:
            return list(grid.push_messages(messages))
        except ObjectPushError as error:
            _log.warning("the SuperLink has not taken messages whole (%s); they are sent again", str(error)[:100])
            wait()
    raise FederationError(
        f"the SuperLink refused parts of messages {_SENDINGS} times; its log says why. The state is saved: continue "
        "with --resume"
    )
