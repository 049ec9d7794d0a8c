"""The convex models of the federated benchmarks: linear SVM, softmax regression, logistic regression on words.

They start at zero, so that runs differ by their data and draws only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.errors import ConfigError
from holdfast.models.networks.linear import LinearClassifier
from holdfast.models.shapes import expect_shape

#: Ditto's vocabulary on StackOverflow: the most frequent words of the training users.
VOCABULARY = 10_000


class SoftmaxRegression(LinearClassifier):
    """One linear layer that starts at zero.

    Args:
        input_shape: shape of one input.
        n_classes: how many logits.
    """

    def __init__(self, input_shape: tuple[int, ...], n_classes: int) -> None:
        super().__init__(input_shape, n_classes)
        _zero(self.head)


class LinearSVM(LinearClassifier):
    """One output whose sign is the class, for the hinge loss: Ditto's model on Vehicle, 101 parameters there.

    Args:
        input_shape: shape of one input.
        n_classes: must be 2 for the sign to name them; the output is one number all the same.

    Attributes:
        weight_penalty: the loss has this times the squared norm of the weights (not of the bias) added.
    """

    weight_penalty = 0.01

    def __init__(self, input_shape: tuple[int, ...], n_classes: int = 2) -> None:
        if n_classes != 2:
            raise ConfigError(f"a linear SVM tells two classes apart and was asked for {n_classes}; use softmax")
        super().__init__(input_shape, 1)
        _zero(self.head)


class BagOfWords(nn.Module):
    """Logistic regression on the mean of one-hot words: Ditto's model on StackOverflow, 5,000,500 parameters there.

    A dense row has 10,000 numbers of which a few dozen aren't zero, and 400 users' rows would take gigabytes. So the
    data keeps the numbers of the words, and the row is made here, for a batch at a time.

    Args:
        input_shape: (words,), how many words a text is padded to. A word is its rank by frequency; ranks beyond the
            vocabulary count in the mean and have no weight; negative numbers are padding.
        n_classes: how many logits.
        vocabulary: how many words have a weight.

    Example:
        >>> model = BagOfWords((4,), 2, vocabulary=3)
        >>> model.features(torch.tensor([[0, 2, 2, -1], [7, 1, -1, -1]])).tolist()
        [[0.3333333432674408, 0.0, 0.6666666865348816], [0.0, 0.5, 0.0]]
    """

    def __init__(self, input_shape: tuple[int, ...], n_classes: int, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        expect_shape("a bag of words", input_shape, "words")
        self.vocabulary = vocabulary
        self.head = nn.Linear(vocabulary, n_classes)
        _zero(self.head)

    def features(self, inputs: Tensor) -> Tensor:
        """The share of each word of the vocabulary in each text, (n, vocabulary)."""
        words = inputs.long().clamp(-1, self.vocabulary) + 1
        ones = torch.ones_like(words, dtype=self.head.weight.dtype)
        counts = torch.zeros(len(words), self.vocabulary + 2, dtype=ones.dtype).scatter_add(1, words, ones)
        return counts[:, 1:-1] / counts[:, 1:].sum(1, keepdim=True).clamp(min=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (n, classes)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


def _zero(layer: nn.Linear) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
