"""The options of `holdfast.primitives.lloyd`, apart from it: a help page that shows them imports no NumPy."""

from __future__ import annotations

from typing import Literal

#: Where centres start: at random points, or at points far from one another.
Start = Literal["random", "k-means++"]
#: What fits the centres.
Engine = Literal["auto", "faiss", "scikit-learn"]
