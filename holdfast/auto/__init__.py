"""``--method auto``: which method to train with, from what is known of the groups and from short tries.

No method is best everywhere, and the ones for unknown groups do harm where no shortcut is. `choose` looks at which
labels the user gave, tries the methods that may use them for a few epochs, judges all tries on the validation set, and
leaves plain training only for what is clearly better. It never sees the test set.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import lazy_names

if TYPE_CHECKING:
    from holdfast.auto.candidates import Knowledge
    from holdfast.auto.choosing import choose, kept_or_chosen
    from holdfast.auto.knowledge import knowledge_of
    from holdfast.auto.options import Auto
    from holdfast.auto.record import Choice, Try
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["Auto", "Choice", "Knowledge", "Try", "choose", "kept_or_chosen", "knowledge_of"]
