"""Training on data that may be poisoned: EPIC, which drops effective poisons, and what it is compared with."""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.poisoning.epic import Drop, Epic, drop_log
    from holdfast.poisoning.isolation import Medoids, class_budgets, gradient_geometry, gradient_medoids
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["Drop", "Epic", "Medoids", "class_budgets", "drop_log", "gradient_geometry", "gradient_medoids"]
