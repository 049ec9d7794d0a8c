"""Training on data that may be poisoned: EPIC, which drops effective poisons, and what it is compared with."""

from __future__ import annotations

from holdfast.poisoning.epic import Drop, Epic, drop_log
from holdfast.poisoning.isolation import Medoids, class_budgets, gradient_geometry, gradient_medoids

__all__ = ["Drop", "Epic", "Medoids", "class_budgets", "drop_log", "gradient_geometry", "gradient_medoids"]
