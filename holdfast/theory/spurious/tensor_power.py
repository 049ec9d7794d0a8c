"""The tensor power recursion ``z <- z + growth z^2``, by which PDE's features win or lose early (PDE, Appendix G).

Growth is explosive: a start twice as large arrives in half the time, and of two features the one with the larger growth
times start has arrived before the other has moved. The hitting time is about 1 / (growth x start), and a bound holds
for any sequence squeezed between two growths.
"""

from __future__ import annotations

import math

from holdfast.errors import ConfigError


def tensor_power(start: float, growth: float, steps: int) -> list[float]:
    """The iterates z_0, ..., z_steps.

    Args:
        start: z_0.
        growth: factor on z squared.
        steps: how many steps.

    Returns:
        ``steps + 1`` numbers.

    Example:
        >>> tensor_power(1.0, 0.5, 2)
        [1.0, 1.5, 2.625]
    """
    iterates = [start]
    for _ in range(steps):
        iterates.append(iterates[-1] * (1 + growth * iterates[-1]))
    return iterates


def hitting_time(start: float, growth: float, target: float) -> int:
    """Steps until the iterate is at least `target`; a positive start and growth get there.

    Raises:
        ConfigError: if start or growth isn't positive.
    """
    _expect_positive(start, growth)
    steps, z = 0, start
    while z < target:
        z += growth * z * z
        steps += 1
    return steps


def hitting_time_bound(start: float, least_growth: float, most_growth: float, target: float) -> float:
    """After this many steps any sequence with z + m z^2 <= z' <= z + M z^2 is at least `target`, and stays so.

    Args:
        start: z_0, positive.
        least_growth: m, positive.
        most_growth: M.
        target: v.

    Returns:
        3 / (m z_0) + (8 M / m) ceil(log2(v / z_0)), or 0 where the start is there already.

    Raises:
        ConfigError: if start or growth isn't positive.
    """
    _expect_positive(start, least_growth)
    if target <= start:
        return 0.0
    doublings = math.ceil(math.log2(target / start))
    return 3 / (least_growth * start) + 8 * most_growth / least_growth * doublings


def _expect_positive(start: float, growth: float) -> None:
    if not (start > 0 and growth > 0):
        raise ConfigError(f"start is {start} and growth is {growth}; only from above 0 does the recursion take off")
