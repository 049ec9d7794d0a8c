"""A model per client: riders that follow the shared model, drivers that change it, tuners that come after."""

from holdfast.federated.personalization.base import Driver, Personalizer, Rider, Tuner
from holdfast.federated.personalization.ditto import Ditto, FineTuning, Local

__all__ = ["Ditto", "Driver", "FineTuning", "Local", "Personalizer", "Rider", "Tuner"]
