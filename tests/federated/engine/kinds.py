"""Ordinary models of many kinds, as strangers bring them: none is written with a federation in mind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CLASSES, LENGTH, FEATURES, WORDS = 3, 6, 4, 11


@dataclass(frozen=True)
class Kind:
    """A model and what it takes.

    Attributes:
        make: makes the module.
        shape: of one input; integers below `WORDS` where it is of words.
        draws: whether training draws random numbers.
        way: how clients must be able to run at once.
        words: whether inputs are words.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (LENGTH, FEATURES)
    draws: bool = False
    way: str = ""
    words: bool = False


class Recurrent(nn.Module):
    def __init__(self, layer: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.layer = layer(FEATURES, 5, batch_first=True, **options)
        self.head = nn.Linear(5 * (1 + bool(options.get("bidirectional"))), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


def with_projections() -> nn.Module:
    model = Recurrent(nn.LSTM, proj_size=3)
    model.head = nn.Linear(3, CLASSES)
    return model


class SequenceFirst(nn.Module):
    """A GRU whose batch is the second dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(FEATURES, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x.transpose(0, 1))[1][0])


class Cells(nn.Module):
    """A recurrence written by hand, over cells of three kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.GRUCell(FEATURES, 5), nn.LSTMCell(5, 5), nn.RNNCell(5, 5, bias=False)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = k = x.new_zeros(len(x), 5)
        state = (h, h)
        for step in x.unbind(1):
            h = self.one(step, h)
            state = self.two(h, state)
            k = self.three(state[0], k)
        return self.head(k)


class WordGru(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(WORDS, FEATURES, padding_idx=0), nn.GRU(FEATURES, 5, batch_first=True)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.layer(self.words(x))[0].mean(1)))


class Transformer(nn.Module):
    def __init__(
        self, dropout: float = 0.1, *, norm_first: bool = False, words: bool = False, causal: bool = False
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8) if words else nn.Linear(FEATURES, 8)
        self.position = nn.Parameter(0.1 * torch.randn(LENGTH, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head, self.causal = nn.Linear(8, CLASSES), causal

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH).to(self.position) if self.causal else None
        return self.head(self.encoder(self.words(x) + self.position, mask=mask).mean(1))


class OneLayer(nn.Module):
    """`nn.TransformerEncoderLayer` with its default dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(FEATURES, 2, 8, batch_first=True)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[:, 0])


class OwnAttention(nn.Module):
    """Attention by torch's fused function, with dropout, as language models write it."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm, self.head = nn.Linear(FEATURES, 24), nn.LayerNorm(FEATURES), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2 if self.training else 0.0, is_causal=True)
        return self.head(mixed.transpose(1, 2).flatten(2).mean(1))


class CrossAttention(nn.Module):
    """Queries that are parameters, keys and values from the input, some of them hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(2, FEATURES))
        self.attention = nn.MultiheadAttention(FEATURES, 2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(2 * FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.arange(LENGTH, device=x.device).expand(len(x), -1) >= LENGTH - 1
        mixed, _ = self.attention(self.queries.expand(len(x), -1, -1), x, x, key_padding_mask=hidden)
        return self.head(mixed.flatten(1))


class FunctionalDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.body(x.mean(1)).relu(), 0.4, self.training))


class TwiceDropped(nn.Module):
    """One dropout layer at two places of different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.dropout = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(self.dropout(x)).relu().mean(1)))


class SequenceDropout(nn.Module):
    """Dropout on sequences whose batch is the second dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.dropout = nn.Linear(FEATURES, CLASSES), nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(x.transpose(0, 1)).mean(0))


class Noise(nn.Module):
    """Draws by a function of torch, in training only."""

    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.draw, self.head = draw, nn.Linear(LENGTH * FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.draw(x).flatten(1) if self.training else x.flatten(1))


class NeverOff(nn.Module):
    """Dropout that stays on in evaluation, as ``F.dropout(x)`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(LENGTH * FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(x.flatten(1), 0.3))


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES, 8).requires_grad_(False), nn.Linear(8, CLASSES)
        self.norm = nn.LayerNorm(8)
        self.norm.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x).relu().mean(1)))


class HalfFrozen(nn.Module):
    """A frozen matrix with a bias that trains, and the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.body.weight.requires_grad_(False)
        self.head.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu().mean(1))


class FrozenWords(nn.Module):
    def __init__(self, *, frozen: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding.from_pretrained(torch.randn(WORDS, 8), freeze=frozen)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x).mean(1))


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(WORDS, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.spare = nn.Linear(FEATURES, CLASSES), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(1))


class Tied(nn.Module):
    """Words that are read and written by one matrix, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS, bias=False)
        self.out.weight = self.words.weight
        self.middle, self.head = nn.Linear(8, 8), nn.Linear(WORDS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.out(self.middle(self.middle(self.words(x).mean(1)).tanh())).relu())


class LoneNorm(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(FEATURES, 8), nn.BatchNorm1d(8, **options), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x.mean(1))).relu())


class KeepsNormOff(LoneNorm):
    """Overrides `train` to keep its norm in evaluation, a usual trick of fine-tuning."""

    def train(self, mode: bool = True) -> KeepsNormOff:
        super().train(mode)
        self.norm.eval()
        return self


class Decides(nn.Module):
    """A branch that depends on the examples."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        means = x.mean(1)
        return torch.stack([self.one(row) if row.sum() > 0 else self.other(row) for row in means])


class Selects(nn.Module):
    """Writes into its own tensor where a condition holds."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.mean(1).clone()
        x[x < 0] *= 0.1
        return self.head(x)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 3 * ctx.saved_tensors[0] ** 2


class OwnFunction(nn.Module):
    """An autograd function without a rule for vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(Cubed.apply(self.body(x.mean(1))))


class Experts(nn.Module):
    """A mixture of experts, each example sent to the best of three."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(FEATURES, 3), nn.ModuleList(nn.Linear(FEATURES, CLASSES) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x.mean(1)
        weight, best = self.gate(x).softmax(-1).max(-1, keepdim=True)
        every = torch.stack([expert(x) for expert in self.experts], 1)
        return weight * every.gather(1, best[..., None].expand(-1, -1, CLASSES))[:, 0]


class LikeTransformers(nn.Module):
    """Gives an object with logits, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.head(x.mean(1)), loss=None)


class MixesExamples(nn.Module):
    """Subtracts the mean of its batch, in both modes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.head(x.mean(1))
        return outputs - 0.5 * outputs.mean(0)


class Packed(nn.Module):
    """Sequences of different lengths, packed, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, FEATURES, padding_idx=0)
        self.layer, self.head = nn.LSTM(FEATURES, 5, batch_first=True, bidirectional=True), nn.Linear(10, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x != 0).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(self.words(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.head(self.layer(packed)[1][0].transpose(0, 1).flatten(1))


class Masked(nn.Module):
    """Attention that sees neither padding nor the future."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8, padding_idx=0)
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        words, padding = self.words(x), (x == 0) & (torch.arange(LENGTH, device=x.device) > 0)
        later = torch.triu(torch.full((LENGTH, LENGTH), -1e4, device=x.device), 1).to(words)
        return self.head(self.attention(words, words, words, key_padding_mask=padding, attn_mask=later)[0].mean(1))


class MeanWord(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, FEATURES, **options), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x).mean(1))


class Temperature(nn.Module):
    """A parameter that is one number."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.head = nn.Parameter(torch.tensor(1.5)), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) * self.temperature


class Collections(nn.Module):
    """Parameters in a list and in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ParameterList([torch.randn(8, 4), torch.randn(4, CLASSES)])
        self.named = nn.ParameterDict({"shift": torch.zeros(CLASSES)})

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.each:
            x = (x @ weight).tanh()
        return x + self.named["shift"]


class Sum(nn.Module):
    """Two parameters that are added up, so both have one gradient, in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (nn.Parameter(torch.randn(CLASSES, 8)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.one + self.other).T


class Counter(nn.Module):
    """A buffer without dimensions that counts passes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, CLASSES)
        self.register_buffer("passes", torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.passes += 0.1
        return self.head(x) * (1 + self.passes)


class Checkpointed(nn.Module):
    """Computes a part again in the backward pass."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(dropout))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.body, x, use_reentrant=False))


def hooked() -> nn.Module:
    """Layers with hooks on inputs, outputs and gradients."""
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, CLASSES))
    model[0].register_forward_hook(lambda module, given, outputs: outputs * 1.5)
    model[2].register_forward_pre_hook(lambda module, given: (given[0] + 0.1,))
    model[1].register_full_backward_hook(lambda module, inward, outward: (inward[0] * 0.5,))
    return model


def images(*layers: nn.Module, width: int = 4) -> nn.Module:
    """Layers between a convolution and a head, for images of 2 x 6 x 6."""
    return nn.Sequential(nn.Conv2d(2, width, 3, padding=1), *layers, nn.Flatten(), nn.LazyLinear(CLASSES))


def ready(module: nn.Module, shape: tuple[int, ...] = (2, 6, 6)) -> nn.Module:
    with torch.no_grad():
        module.eval()(torch.zeros(2, *shape))
    return module.train()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm(self.conv(x)), inplace=True)


def lora() -> nn.Module:
    """Adapters of peft on a tiny encoder of transformers; everything else but the head is frozen."""
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
        num_labels=CLASSES,
    )
    adapters = LoraConfig(task_type="SEQ_CLS", r=2, lora_dropout=0.1, target_modules=["query", "value"])
    return get_peft_model(BertForSequenceClassification(config), adapters)


def head_of(layer: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(layer, nn.Linear(width, CLASSES))


FLAT, IMAGE = (8,), (2, 6, 6)
KINDS = {
    # The table of models that did not run.
    "rnn": Kind(lambda: Recurrent(nn.RNN)),
    "gru": Kind(lambda: Recurrent(nn.GRU)),
    "lstm": Kind(lambda: Recurrent(nn.LSTM)),
    "transformer layer": Kind(OneLayer, draws=True),
    "functional dropout": Kind(FunctionalDropout, draws=True, way="joined"),
    "alpha dropout": Kind(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.SELU(), nn.AlphaDropout(0.3), nn.Linear(8, CLASSES)),
        FLAT,
        draws=True,
        way="joined",
    ),
    "lstm with dropout": Kind(lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.3), draws=True),
    "one dropout at two places": Kind(TwiceDropped, draws=True, way="joined"),
    "dropout of channels": Kind(lambda: ready(images(nn.Dropout2d(0.4), nn.ReLU())), IMAGE, draws=True, way="joined"),
    "frozen layer": Kind(Frozen),
    "unused parameter": Kind(Unused, way="joined"),
    "batch norm and one example": Kind(LoneNorm, way="vmap"),
    # Others.
    "lora of peft": Kind(lora, (LENGTH,), draws=True, words=True),
    "bidirectional gru": Kind(lambda: Recurrent(nn.GRU, bidirectional=True, num_layers=2)),
    "lstm with projections": Kind(with_projections),
    "relu rnn without bias": Kind(lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False)),
    "sequence first": Kind(SequenceFirst),
    "cells": Kind(Cells, way="joined"),
    "words into a gru": Kind(lambda: WordGru(0.3), (LENGTH,), draws=True, words=True),
    "transformer of words": Kind(lambda: Transformer(words=True), (LENGTH,), draws=True, words=True),
    "causal transformer": Kind(lambda: Transformer(0.0, norm_first=True, causal=True)),
    "attention of one's own": Kind(OwnAttention, draws=True),
    "cross attention": Kind(CrossAttention, draws=True),
    "dropout on sequences first": Kind(SequenceDropout, draws=True),
    "gaussian noise": Kind(lambda: Noise(lambda x: x + 0.3 * torch.randn_like(x)), draws=True, way="joined"),
    "bernoulli": Kind(lambda: Noise(lambda x: x * torch.bernoulli(torch.full_like(x, 0.7))), draws=True, way="joined"),
    "uniform noise": Kind(
        lambda: Noise(lambda x: x * torch.rand(len(x), 1, 1, device=x.device)), draws=True, way="joined"
    ),
    "stochastic depth": Kind(
        lambda: Noise(lambda x: x * (torch.rand(1, device=x.device) + 0.5)), draws=True, way="vmap"
    ),
    "gumbel softmax": Kind(lambda: Noise(lambda x: F.gumbel_softmax(x, dim=-1)), draws=True, way="rows"),
    "random leaks": Kind(lambda: Noise(lambda x: F.rrelu(x, training=True)), draws=True, way="rows"),
    "dropout that is never off": Kind(NeverOff, draws=True),
    "matrix frozen, bias not": Kind(HalfFrozen),
    "frozen words": Kind(FrozenWords, (LENGTH,), words=True, way="joined"),
    "words": Kind(lambda: FrozenWords(frozen=False), (LENGTH,), words=True),
    "bag of words": Kind(Bag, (LENGTH,), words=True),
    "tied weights": Kind(Tied, (LENGTH,), words=True),
    "norm without statistics": Kind(lambda: LoneNorm(track_running_stats=False), way="vmap"),
    "norm that is kept off": Kind(KeepsNormOff),
    "residual block": Kind(lambda: ready(images(Residual(), nn.AdaptiveAvgPool2d(2))), IMAGE, way="vmap"),
    "instance norm with statistics": Kind(
        lambda: ready(images(nn.InstanceNorm2d(4, affine=True, track_running_stats=True))), IMAGE
    ),
    "group norm": Kind(lambda: ready(images(nn.GroupNorm(2, 4), nn.GELU())), IMAGE),
    "depthwise convolution": Kind(lambda: ready(images(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU6())), IMAGE),
    "transposed convolution": Kind(lambda: ready(images(nn.ConvTranspose2d(4, 2, 2, stride=2))), IMAGE),
    "convolution of sequences": Kind(
        lambda: ready(
            nn.Sequential(nn.Conv1d(LENGTH, 5, 3), nn.PReLU(), nn.Flatten(), nn.LazyLinear(CLASSES)), (LENGTH, FEATURES)
        )
    ),
    "weight norm": Kind(lambda: head_of(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), 8), FLAT, way="vmap"),
    "spectral norm": Kind(
        lambda: head_of(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), 8), FLAT, way="rows"
    ),
    "branches": Kind(Decides, way="rows"),
    "in-place writes": Kind(Selects),
    "own autograd function": Kind(OwnFunction),
    "mixture of experts": Kind(Experts),
    "outputs with logits": Kind(LikeTransformers, way="joined"),
    "packed sequences": Kind(Packed, (LENGTH,), words=True, way="rows"),
    "masks": Kind(Masked, (LENGTH,), words=True, way="joined"),
    "sparse words": Kind(lambda: MeanWord(sparse=True), (LENGTH,), words=True, way="joined"),
    "words by frequency": Kind(lambda: MeanWord(scale_grad_by_freq=True), (LENGTH,), words=True),
    "a number for a parameter": Kind(Temperature, FLAT, way="joined"),
    "lists of parameters": Kind(Collections, FLAT),
    "parameters with one gradient": Kind(Sum, FLAT),
    "buffer that counts": Kind(Counter, FLAT, way="rows"),
    "checkpointed": Kind(Checkpointed, FLAT),
    "hooks": Kind(hooked, FLAT),
    "dropout of nothing": Kind(lambda: Transformer(0.0)),
    "synchronised norm": Kind(lambda: head_of(nn.SyncBatchNorm(8), 8), FLAT, way="vmap"),
    "norm by roots": Kind(lambda: head_of(nn.RMSNorm(8), 8), FLAT),
    "slopes that are learned": Kind(lambda: head_of(nn.PReLU(8), 8), FLAT),
    "orthogonal weights": Kind(lambda: head_of(nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)), 8), FLAT),
    "examples that interact": Kind(MixesExamples, way="vmap"),
}


def made(kind: str) -> nn.Module:
    """The module of a kind in double precision, the same each time."""
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    model = KINDS[kind].make().double()
    torch.random.set_rng_state(state)
    return model
