"""byzfl, a published library of aggregators and attacks, without the part that needs torchvision."""

import sys
from types import ModuleType
from typing import Any

import pytest


def published() -> Any:
    """The package. Its benchmark runner imports torchvision and seaborn at the top, so a stand-in takes its place."""
    sys.modules.setdefault("byzfl.benchmark", ModuleType("byzfl.benchmark"))
    return pytest.importorskip("byzfl", reason="pip install --no-deps byzfl")
