"""CivilComments in WILDS' form: is a comment toxic, whoever it mentions?

Eight identities may be mentioned, several at once, so evaluation groups overlap: one per identity and class. Training
groups partition the comments instead, in one of the three ways found in the literature. Comments are tokenised when
they are gathered. The file is WILDS' own (CC0). Its host fails since April 2026
(https://github.com/p-lambda/wilds/issues/174), so a copy on the Hugging Face hub with the same sum comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.data.catalog import DataSet, register
from holdfast.data.examples import Examples, Splits
from holdfast.data.readers.tables import read_columns, split_codes
from holdfast.data.readers.texts import TextInputs
from holdfast.data.remote_files import RemoteFile
from holdfast.errors import DataError

IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
CLASS_NAMES = ("civil", "toxic")
SIZES = {"train": 269_038, "validation": 45_180, "test": 133_782}


def overlapping_groups(
    labels: NDArray[np.int64], identities: NDArray[np.bool_], *, whole_classes: bool = False
) -> tuple[NDArray[np.bool_], list[str]]:
    """WILDS' evaluation groups: for each identity, the civil and the toxic comments that mention it.

    Args:
        labels: 0 or 1, of shape (n,).
        identities: which identities each comment mentions, of shape (n, 8).
        whole_classes: add the two whole classes, as PDE's evaluator does.

    Returns:
        Memberships of shape (n, 16) or (n, 18), and a name per column.
    """
    of_class = labels[:, None] == np.arange(2)
    member = (identities[:, :, None] & of_class[:, None, :]).reshape(len(labels), -1)
    names = [f"{label}/{identity}" for identity in IDENTITIES for label in CLASS_NAMES]
    if whole_classes:
        member, names = np.concatenate([member, of_class], 1), [*names, *(f"{label}/all" for label in CLASS_NAMES)]
    return member, names


def training_attribute(
    identities: NDArray[np.bool_], partition: Literal["black", "any", "joint"]
) -> tuple[NDArray[np.int64], list[str]]:
    """One attribute per comment, whose product with the class partitions the comments for training.

    Args:
        identities: which identities each comment mentions, of shape (n, 8).
        partition: ``black`` (mentioned or not, WILDS' default), ``any`` (any of the eight), or ``joint`` (every
            combination of the eight, 256 values, PDE's choice).

    Returns:
        The attribute, int64 of shape (n,), and a name per value.
    """
    if partition == "black":
        return identities[:, IDENTITIES.index("black")].astype(np.int64), ["not black", "black"]
    if partition == "any":
        mentioned: NDArray[np.bool_] = identities.max(1)
        return mentioned.astype(np.int64), ["no identity", "any identity"]
    bits = 1 << np.arange(len(IDENTITIES))
    names = ["+".join(np.array(IDENTITIES)[(code & bits) > 0]) or "none" for code in range(1 << len(IDENTITIES))]
    return (identities * bits).sum(1, dtype=np.int64), names


@register
@dataclass(frozen=True)
class CivilComments(DataSet):
    """Online comments, toxic or civil, and the identities they mention.

    Attributes:
        tokenizer: a name on the Hugging Face hub, or a local folder.
        max_tokens: comments are cut or padded to this many tokens.
        partition: training groups: mentions `black` or not, `any` identity or none, or the `joint` 256 combinations;
            each times the class.
        whole_classes: evaluate the two whole classes as groups too (18 groups instead of 16).
        check_counts: refuse data whose parts don't have the published sizes.
    """

    name = "civilcomments"
    summary = "448,000 online comments, toxic or civil, 16 overlapping groups of 8 identities"
    files = (
        RemoteFile(
            "civilcomments_v1.0/all_data_with_identities.csv",
            "https://huggingface.co/datasets/shlomihod/civil-comments-wilds/resolve/"
            "3fbfeca80bad0f3aec37e72fa07eff222b6e752f/all_data_with_identities.csv",
            sha256="403e638c83a225d738a937ff98b61fd0631e30f710d57928c7766d413526b77f",
            size=272_542_670,
            mirrors=(
                "https://worksheets.codalab.org/rest/bundles/0x8cd3de0634154aeaad2ee6eb96723c6e/contents/blob/"
                "all_data_with_identities.csv",
            ),
        ),
    )
    recipe: ClassVar[Any] = {
        "model": "distilbert-base-uncased",
        "weights": "hub",
        "epochs": 5,
        "batch_size": 16,
        "learning_rate": 1e-5,
        "weight_decay": 1e-2,
        "optimizer": "adamw",
        "clip_norm": 1.0,
        "decay_all": False,
        "schedule": "linear-steps",
    }

    tokenizer: str = "distilbert-base-uncased"
    max_tokens: int = 300
    partition: Literal["black", "any", "joint"] = "black"
    whole_classes: bool = False
    check_counts: bool = True

    def load(self, root: Path) -> Splits:
        """Read the csv; comments are tokenised when they are gathered."""
        path = self.locate(root, "civilcomments_v1.0/all_data_with_identities.csv")
        table = read_columns(path, ("comment_text", "split", "toxicity", *IDENTITIES))
        codes = split_codes(path, "split", table["split"])
        labels = _at_least_half(path, "toxicity", table["toxicity"]).astype(np.int64)
        identities = np.stack([_at_least_half(path, name, table[name], missing=False) for name in IDENTITIES], 1)
        attribute, values = training_attribute(identities, self.partition)
        member, names = overlapping_groups(labels, identities, whole_classes=self.whole_classes)
        inputs = TextInputs(table["comment_text"], self.tokenizer, self.max_tokens)

        def part(code: int) -> Examples:
            rows = np.flatnonzero(codes == code)
            overlapping = code > 0
            return Examples.of(
                inputs.part(rows),
                labels[rows],
                attributes=attribute[rows],
                memberships=torch.from_numpy(member[rows]) if overlapping else None,
                ids=rows,
                class_names=CLASS_NAMES,
                attribute_names=values,
                group_names=names if overlapping else None,
            )

        splits = Splits(self.name, part(0), part(1), part(2))
        sizes = {"train": len(splits.train), "validation": len(splits.validation), "test": len(splits.test)}
        if self.check_counts and sizes != SIZES:
            raise DataError(
                f"{path} has {sizes} comments, published are {SIZES}; get it again, or set check_counts to False if "
                "the difference is intended"
            )
        return splits


def _at_least_half(
    path: Path, column: str, values: NDArray[np.object_], missing: bool | None = None
) -> NDArray[np.bool_]:
    """Which values are 0.5 or more; an empty one is `missing`, or an error where that is None."""
    words, inverse = np.unique(values.astype(str), return_inverse=True)
    numbers = np.array([_number(word) for word in words])
    if missing is not None:
        numbers[words == ""] = float(missing)
    result = numbers[inverse]
    wrong = np.flatnonzero(np.isnan(result))
    if len(wrong):
        at = int(wrong[0])
        raise DataError(f"{path} has {values[at]!r} in column {column!r} of row {at + 1}; it must be a number")
    at_least: NDArray[np.bool_] = result >= 0.5
    return at_least


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
