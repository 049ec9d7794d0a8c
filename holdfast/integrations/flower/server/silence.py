"""Silent nodes are asked whether they are free: an order whose reply was lost is over, and can be given anew.

Flower drops a reply whose push fails, and an order whose parts the SuperLink lost when it was killed; nobody is told of
either, so a node without work would count as busy. But a node does one thing after another, in the order in which it
was asked, and sends each reply before it takes the next message. Once it has answered a later question it is through
with all it was given before: what has not arrived by then never will.

A node that is at work answers when it is done. It is asked the more rarely the longer it has been silent, and no node
gets more orders for a round by losing them than the logarithm of the timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.integrations.flower.server.questions import Order

#: Seconds of silence before the first question, at least, and as a share of the timeout.
_LEAST, _SHARE = 5.0, 0.1


@dataclass
class Silence:
    """Which nodes have been silent for how long.

    Attributes:
        timeout: that clients have to answer.
    """

    timeout: float
    _asked: dict[int, int] = field(default_factory=dict)
    _last: dict[int, float] = field(default_factory=dict)

    def due(self, orders: Mapping[str, Order], now: float) -> dict[int, frozenset[str]]:
        """Nodes that are to be asked now, each with the names of the orders that are under way to it."""
        under_way: dict[int, set[str]] = {}
        for name, order in orders.items():
            if order.question is not None:
                under_way.setdefault(order.node, set()).add(name)
        due = {}
        for node, names in sorted(under_way.items()):
            times = self._asked.get(node, 0)
            since = max(self._last.get(node, 0.0), *(orders[name].sent for name in names))
            if now - since >= max(_LEAST, _SHARE * self.timeout) * 2**times:
                due[node] = frozenset(names)
                self._asked[node], self._last[node] = times + 1, now
        return due

    def heard(self, node: int) -> None:
        """A node has answered an order: its next silence is a new one."""
        self._asked.pop(node, None)

    def forget(self, nodes: Iterable[int]) -> None:
        """Nodes are gone."""
        for node in nodes:
            self._asked.pop(node, None)
            self._last.pop(node, None)
