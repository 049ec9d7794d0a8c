"""The mixture of math problems that S2L's tables on problems train on: a few sources have most of the examples."""

from __future__ import annotations

from collections.abc import Mapping

#: Examples of each source to train on.
MIXTURE: Mapping[str, int] = {
    "gsm8k": 900,
    "mawps-asdiv": 600,
    "svamp": 250,
    "sums": 300,
    "differences": 150,
    "products": 120,
    "sequences": 80,
    "comparisons": 60,
    "remainders": 40,
}
TEST_EXAMPLES = 60
#: The sources that are no templates; a bed of all their problems is about 11,000.
REAL = ("gsm8k", "mawps-asdiv", "svamp")
