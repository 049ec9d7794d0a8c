"""Attention with several heads, written out: so that it runs for stacked weights, and so that what it drops has a name.

Torch has it as one function with 25 arguments (`torch.nn.functional.multi_head_attention_forward`), which hides its
dropout, and whose sequences come with the batch second. Vaswani et al., 2017, https://arxiv.org/abs/1706.03762.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class HeadsCall:
    """The arguments of torch's function, in its order; weights may be stacked for many clients.

    Sequences have the shape (length, examples, features).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    embed_dim_to_check: int
    num_heads: int
    in_proj_weight: Any
    in_proj_bias: Any
    bias_k: Any
    bias_v: Any
    add_zero_attn: bool
    dropout_p: float
    out_proj_weight: Any
    out_proj_bias: Any
    training: bool = True
    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    use_separate_proj_weight: bool = False
    q_proj_weight: Any = None
    k_proj_weight: Any = None
    v_proj_weight: Any = None
    static_k: Tensor | None = None
    static_v: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    @classmethod
    def of(cls, *args: Any, **options: Any) -> HeadsCall:
        """From the arguments of a call."""
        return cls(*args, **options)

    @property
    def unusual(self) -> bool:
        """Whether it uses what is not written out here: extra biases, other widths of keys, one example alone."""
        extras = (self.bias_k, self.bias_v, self.static_k, self.static_v)
        return (
            self.query.ndim != 3
            or self.add_zero_attn
            or self.use_separate_proj_weight
            or any(extra is not None for extra in extras)
        )


def attend(call: HeadsCall, drop: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor | None]:
    """What torch's function gives.

    Args:
        call: its arguments.
        drop: dropout of the attention weights, which have the shape (examples, heads, length, length of the keys).

    Returns:
        Outputs, shape (length, examples, features), and the weights if they are wanted.
    """
    # Examples first: whoever stacks clients joins their examples in the first dimension.
    query, key, value = (sequence.transpose(0, 1) for sequence in (call.query, call.key, call.value))
    q, k, v = (_split(part, call.num_heads) for part in _projected(call, query, key, value))
    weights = attention_weights(q, k, _mask(call, q.dtype), is_causal=call.is_causal and call.attn_mask is None)
    dropped = drop(weights) if call.training and call.dropout_p else weights
    joined = (dropped @ v).transpose(1, 2).flatten(2)
    outputs = F.linear(joined, call.out_proj_weight, call.out_proj_bias).transpose(0, 1)
    if not call.need_weights:
        return outputs, None
    return outputs, dropped.mean(1) if call.average_attn_weights else dropped


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, *, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Softmax of scaled products, shape (..., length, length of the keys); a mask is added, or True where it lets."""
    scores = (query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)) @ key.transpose(-2, -1)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


def _projected(call: HeadsCall, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    if call.query is call.key and call.key is call.value:
        return list(F.linear(query, call.in_proj_weight, call.in_proj_bias).chunk(3, -1))
    # Queries, keys and values differ: all three projections of each are made, and one is used.
    sources = (query, key, value)
    return [
        F.linear(source, call.in_proj_weight, call.in_proj_bias).chunk(3, -1)[place]
        for place, source in enumerate(sources)
    ]


def _split(sequence: Tensor, heads: int) -> Tensor:
    """(examples, length, features) as (examples, heads, length, features of a head)."""
    return sequence.view(*sequence.shape[:-1], heads, -1).transpose(1, 2)


def _mask(call: HeadsCall, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores; True in torch's masks of this function means hidden."""
    total: Tensor | None = None
    if call.attn_mask is not None:
        attention = _additive(call.attn_mask, dtype)
        total = attention.view(-1, call.num_heads, *attention.shape[1:]) if attention.ndim == 3 else attention
    if call.key_padding_mask is not None:
        padding = _additive(call.key_padding_mask, dtype)[:, None, None]
        total = padding if total is None else total + padding
    return total


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
