"""Small files in LEAF's form."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def write_leaf(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content))


def writer(samples: int, seed: int, classes: int = 62, features: int = 784) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(seed)
    return rng.random((samples, features)).round(3).tolist(), rng.integers(0, classes, samples).tolist()
