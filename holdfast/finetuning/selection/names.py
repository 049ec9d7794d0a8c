"""The ways to choose fine-tuning data, by name; nothing heavy is imported for them.

S2L needs a proxy's loss curves. The others are what it is compared with: two need nothing but the rows, one their
length, four a reference model that was trained on the data.
"""

from __future__ import annotations

from typing import Literal, get_args

Method = Literal[
    "s2l",
    "random",
    "source-balanced",
    "longest",
    "least-confidence",
    "middle-perplexity",
    "learnability",
    "facility-location",
]
METHODS: tuple[Method, ...] = get_args(Method)
#: Ways that look at no model.
WITHOUT_MODEL: tuple[Method, ...] = ("random", "source-balanced", "longest")
