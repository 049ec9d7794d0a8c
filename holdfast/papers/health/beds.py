"""The beds: data with a shortcut, with none, with wrong labels or with poisons, by name.

Two kinds are kept apart. On *development* beds checks, thresholds and the rule of ``--method auto`` may be tuned. On
*report* beds the claims are judged; their names were committed with every threshold before any of them was run, and
they are run once. No report bed shares its source and its shortcut with a development bed.

A bed is drawn by the seed. Every part has as many of each class. In training a share `correlation` of each class has
its own value of the attribute, in validation a smaller one, and in the test half: the worst of its groups tells who
follows the shortcut. What a user of the bed would know of the attributes is `known`; what is not known is not in the
examples that methods, checks and choices get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.auto.candidates import Knowledge


@dataclass(frozen=True)
class Bed:
    """How a bed is made.

    Attributes:
        source: what it is drawn from, see `holdfast.papers.health.sources`; a data set of the catalog where the bed is
            called like it.
        known: what a user knows of the attributes.
        correlation: share of each class whose attribute is the class's own, in training; one half is no shortcut.
        mark: how the attribute is shown; None where the source has it.
        noise: share of wrong labels, in training and validation.
        poisoned: share of the training images of class 0 that carry the mark and the label of class 1; the second group
            of each class of the test set is marked.
        sizes: examples of the three parts.
        model: the network.
        rate: learning rate.
    """

    source: str
    known: Knowledge
    correlation: float = 0.5
    mark: str | None = None
    noise: float = 0.0
    poisoned: float = 0.0
    sizes: tuple[int, int, int] = (1200, 400, 800)
    model: str = "mlp"
    rate: float = 0.02


_FEW = (800, 300, 800)

#: On these the claims are judged. None stands in the documents. None has a shortcut and nothing known of it: there no
#: validation score shows the harm of plain training, and ``auto`` keeps to it by rule.
REPORT: Mapping[str, Bed] = {
    "fashion-blur": Bed("fashion dresses and coats", "validation", 0.95, "blur", sizes=_FEW),
    "cifar-cast": Bed("cifar deer and horses", "validation", 0.95, "cast", sizes=_FEW, model="pocket-cnn"),
    "mnist-frame": Bed("mnist 3 and 8", "train", 0.97, "frame", sizes=_FEW),
    "sentences-word": Bed("sentences", "validation", 0.95, "word", sizes=_FEW, model="text-bag", rate=2.0),
    "wives-insurance": Bed("wives", "train", 0.9),
    "computers-drive": Bed("computers", "validation", 0.9, model="linear"),
    "cifar-clean": Bed("cifar cars and frogs", "validation", 0.5, "cast", sizes=_FEW),
    "vietnam-clean": Bed("vietnam", "validation", 0.5),
    "fashion-noise": Bed("fashion trousers and dresses", "none", noise=0.3, sizes=_FEW),
    "food-noise": Bed("food", "none", noise=0.25),
    "mnist-poisons": Bed("mnist 1 and 7", "none", mark="patch", poisoned=0.05, sizes=_FEW),
}

#: The report beds of an earlier version of the checks. Run once, four of its six promises failed; since then these are
#: development beds.
_EARLIER: Mapping[str, Bed] = {
    "coloured-digits": Bed("coloured-digits", "train"),
    "fashion-watermark": Bed("fashion shirts and coats", "validation", 0.95, "watermark"),
    "cifar-border": Bed("cifar airplanes and ships", "validation", 0.95, "border", sizes=(1000, 320, 600)),
    "mnist-background": Bed("mnist halves", "train", 0.97, "background"),
    "reviews-source": Bed("reviews", "validation", 0.95, model="text-bag", rate=2.0),
    "slid-sex": Bed("slid", "train", 0.9),
    "diamonds-colour": Bed("diamonds", "validation", 0.9),
    "fashion-clean": Bed("fashion pullovers and dresses", "validation", 0.5, "watermark"),
    "cifar-noise": Bed("cifar cats and trucks", "none", noise=0.25, sizes=(1000, 320, 600)),
    "fashion-poisons": Bed("fashion sneakers and boots", "none", mark="corner", poisoned=0.05),
}

#: On these everything may be tuned.
DEVELOPMENT: Mapping[str, Bed] = {
    **_EARLIER,
    "digits-corner": Bed("digits", "validation", 0.95, "corner", sizes=(800, 240, 500)),
    "mnist-border": Bed("mnist 4 and 9", "validation", 0.95, "border"),
    "males-union": Bed("males", "train", 0.9, sizes=(900, 300, 600)),
    "digits-clean": Bed("digits", "validation", 0.5, "corner", sizes=(800, 240, 500)),
    "mnist-noise": Bed("mnist 4 and 9", "none", noise=0.25),
    "digits-poisons": Bed("digits", "none", mark="corner", poisoned=0.08, sizes=(800, 240, 500)),
}
