"""A text classifier without pretraining: the mean of word embeddings and a linear layer (fastText, Joulin et al. 2017).

It is the default for texts, since it needs no network, learns on a CPU in seconds, and is hard to beat without
pretrained weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.data.own.hashed_texts import VOCABULARY
from holdfast.models.shapes import expect_shape


class TextBag(nn.Module):
    """Mean of word embeddings, then a linear layer.

    Args:
        input_shape: (tokens,), the longest text; any length works.
        n_classes: how many logits.
        width: of an embedding.
        vocabulary: how many word numbers there are; 0 is padding.

    Example:
        >>> TextBag((4,), 2)(torch.tensor([[5, 9, 0, 0]])).shape
        torch.Size([1, 2])
    """

    def __init__(
        self, input_shape: tuple[int, ...], n_classes: int, width: int = 32, vocabulary: int = VOCABULARY
    ) -> None:
        super().__init__()
        expect_shape("a bag of embeddings", input_shape, "tokens")
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.head = nn.Linear(width, n_classes)

    def features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Mean embedding of each text, (n, width); zeros for a text without words."""
        words = input_ids.long()
        mask = (words != 0 if attention_mask is None else attention_mask).to(self.embedding.weight.dtype)
        total = torch.einsum("nt,ntw->nw", mask, self.embedding(words))
        return total / mask.sum(1, keepdim=True).clamp(min=1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(input_ids, attention_mask))
        return logits
