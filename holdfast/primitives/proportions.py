"""How sure one can be of a share after so many trials; without torch or NumPy, so that declarations can use it."""

from __future__ import annotations

from math import sqrt

#: The normal quantile of a two-sided interval of 95 %.
Z95 = 1.959963984540054


def wilson(successes: float, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a proportion, which stays inside [0, 1] and is honest for few trials (Wilson, 1927).

    Args:
        successes: how many succeeded, or the sum of what each trial gave from 0 to 1.
        trials: of how many, at least 1.
        z: the normal quantile; 1.96 for 95%.

    Returns:
        Its lower and upper end.
    """
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
