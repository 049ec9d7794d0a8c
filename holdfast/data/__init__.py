"""Examples with stable ids, the readers of data sets, and the builders of spurious ones."""

from holdfast.data.examples import Examples, Splits
from holdfast.data.inputs import Inputs, LazyInputs, TensorInputs

__all__ = ["Examples", "Inputs", "LazyInputs", "Splits", "TensorInputs"]
