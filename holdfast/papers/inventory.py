"""Every table and figure of the documents: the experiments that answer it, or why none does.

The list of results says so row by row, so that nobody has to find out by absence what was never run. A test compares
the numbers here with those that each document counts up to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A table or a figure.

    Attributes:
        name: as the document numbers it.
        shows: what it is about, in a few words.
        experiments: names of ours that answer it.
        why_not: where there is none, why.
    """

    name: str
    shows: str
    experiments: tuple[str, ...] = ()
    why_not: str = ""


_DRAWING = "a drawing that explains; it measures nothing"
_SETTINGS = "settings, which are in the presets and the spec"
_PICTURES = "pictures of single images, whose weights and data can't be fetched here"
_COUNTS = "sizes of inferred groups on data that can't be fetched here; cells keep their precision and recall"
_LATER = "not declared: {}"


def _tables(prefix: str, rows: Mapping[str, tuple[str, str]]) -> tuple[Item, ...]:
    """Items from rows of (what is shown, experiments separated by spaces, or ``-`` and why there is none)."""
    items = []
    for number, (shows, answer) in rows.items():
        kind = {"T": "Table", "F": "Figure"}[number[0]]
        if answer.startswith("-"):
            items.append(Item(f"{kind} {number[1:]}", shows, why_not=answer[1:]))
        else:
            names = tuple(f"{prefix}/{name}" if "/" not in name else name for name in answer.split())
            items.append(Item(f"{kind} {number[1:]}", shows, names))
    return tuple(items)


#: Items by document, in its order.
DOCUMENTS: Mapping[str, tuple[Item, ...]] = {
    "Ditto": _tables(
        "ditto",
        {
            "F1": ("point estimation: error against lambda", "figure1"),
            "F2": ("point estimation: how related clients are", "figure2"),
            "F3": ("robustness on Fashion-MNIST, drawn from Table 8", "table8"),
            "F4": (
                "robustness on other data sets, drawn from Tables 6 to 11",
                "watches watches-seven chats ratings table6 table7 table9 table10 table11",
            ),
            "F5": ("fair objectives overfit to corrupted clients", "figure5"),
            "F6": ("robust and fair, or only one of the two", "table7 table8"),
            "F7": ("joint solver and fine-tuning under model replacement", "figure7"),
            "F8": ("fine-tuning from an early-stopped shared model", "figure8"),
            "F9": (
                "when to stop training the shared model",
                "-clients' losses by round, which cells don't keep; figure8 takes the best stop by test data",
            ),
            "T1": ("data sets", "-sizes of data sets, which the loaders' tests compare"),
            "T2": ("fairness without attack", "table8 table7"),
            "T3": ("other ways to personal models", "watches-personal table3"),
            "T4": ("lambda chosen by clients", "table4"),
            "T5": ("Ditto on robust aggregation", "watches-robust table5"),
            "T6": ("Vehicle", "watches table6"),
            "T7": ("FEMNIST", "watches-seven table7"),
            "T8": ("Fashion-MNIST", "table8"),
            "T9": ("FEMNIST, skewed", "table9"),
            "T10": ("CelebA", "watches-seven table10"),
            "T11": ("StackOverflow", "chats table11"),
        },
    ),
    "Ditto, the earlier version": _tables(
        "ditto",
        {
            "F1": ("fair objectives overfit to corrupted clients", "figure5"),
            "F2": ("robust rules that are not fair", "table7 table8"),
            "F3": ("robustness on Vehicle and FEMNIST", "watches watches-seven table6 table7"),
            "F4": ("joint solver and two kinds of fine-tuning", "figure7"),
            "T1": ("fairness on FEMNIST and CelebA", "watches-seven table7 table10"),
            "T2": ("data sets", "-sizes of data sets, which the loaders' tests compare"),
            "T3": ("interpolation of models (APFL)", "watches-personal table3"),
            "T4": ("other objectives of several tasks", "watches-personal table3"),
            "T5": ("Vehicle", "watches table6"),
            "T6": ("FEMNIST", "watches-seven table7"),
            "T7": ("CelebA", "watches-seven table10"),
        },
    ),
    "Personalized FL with spurious features": _tables(
        "personalization",
        {
            "F1": ("what transfers along fine-tuning", "figure1"),
            "F2": ("few counterexamples", "figure2"),
            "F3": ("disparity and transferability, ablation", "figure3"),
            "F4": ("ratios of gradients", "figure3"),
            "F5": ("examples of the data", "-" + _DRAWING),
            "F6": ("accuracy at home and elsewhere", "figure1"),
            "F7": ("gradients and weights of a linear model", "figure8"),
            "F8": ("weights of a linear model in fine-tuning", "figure8"),
            "T1": ("what methods require", "-words; it measures nothing"),
            "T2": ("worst accuracy and disparity", "table2"),
            "T3": ("average accuracy", "table3"),
            "T4": ("notation", "-words; it measures nothing"),
            "T5": ("network", "-" + _SETTINGS),
        },
    ),
    "PDE": _tables(
        "pde",
        {
            "F1": ("overview", "-" + _DRAWING),
            "F2": ("the synthetic data", "-" + _DRAWING),
            "F3": ("training of ERM and PDE", "synthetic-pure"),
            "F4": ("momentum at the first expansion", "figure4"),
            "F5": ("accuracy during expansion by rate", "table6"),
            "F6": ("ERM with momentum", "synthetic-pure"),
            "F7": ("all data at once", "synthetic-pure"),
            "T1": ("synthetic data", "table1"),
            "T2": ("methods compared", "table2"),
            "T3": ("epochs until the best worst group", "table3"),
            "T4": ("after each stage", "table4"),
            "T5": ("size of an expansion", "table5"),
            "T6": ("rate of the expansion", "table6"),
            "T7": ("sizes of the warm-up sets", "-" + _SETTINGS),
            "T8": ("hyperparameters", "-" + _SETTINGS),
            "T9": ("epochs on CelebA", "table3"),
            "T10": ("epochs on CivilComments", "table3"),
            "T11": ("augmentation", "table11"),
        },
    ),
    "Dissertation, chapter 2 (CREST)": _tables(
        "crest",
        {
            "F2.1": ("bias and variance of coresets' gradients", "gradients"),
            "F2.2": ("accuracy against time", "table2.1"),
            "F2.3": ("coresets against choosing every batch", "table2.1"),
            "F2.4": ("updates over training", "table2.3"),
            "F2.5": ("difficulty of what is chosen", "difficulty budgets"),
            "F9.1": ("union of mini-batches", "gradients"),
            "F9.2": ("what was dropped, and how often examples are chosen", "difficulty"),
            "F9.3": ("size of mini-batches", "where"),
            "F9.4": ("variance of gradients", "gradients"),
            "T2.1": ("a tenth of the budget", "table2.1"),
            "T2.2": (
                "seconds by component",
                "-times of single calls, which benchmarks/selection.py measures for ours",
            ),
            "T2.3": ("components", "table2.3"),
            "T9.1": ("setups", "-" + _SETTINGS),
            "T9.2": ("a fifth of the budget", "where budgets"),
            "T9.3": ("hyperparameters", "-" + _SETTINGS),
        },
    ),
    "Dissertation, chapter 3 (S2L)": _tables(
        "s2l",
        {
            "F3.1": ("overview", "-" + _DRAWING),
            "F3.2": ("curves within clusters", "clusters"),
            "F3.3": ("curves of a larger model", "clusters"),
            "F3.4": ("accuracy against size", "facts table9.5"),
            "F3.5": (
                "seconds of choosing",
                "-its models can't be fetched here; benchmarks/s2l.py times ours",
            ),
            "F3.6": ("topics of clusters", "clusters"),
            "F3.7": ("radiology reports", "-private data of the authors"),
            "F3.8": ("length of curves", "curves"),
            "F3.9": ("density of curves", "clusters curves"),
            "F3.10": ("proxy trained on a part", "curves"),
            "F3.11": ("number of clusters", "facts starts"),
            "F3.12": ("accuracy by epoch", "epochs"),
            "F3.13": ("other proxies", "curves"),
            "F9.5": ("accuracy by test set", "table9.5"),
            "F9.6": ("examples of a cluster", "-" + _DRAWING),
            "F9.7": ("examples of a cluster", "-" + _DRAWING),
            "F9.8": ("examples of a cluster", "-" + _DRAWING),
            "F9.9": ("topics of the subset", "picked coverage"),
            "T3.1": ("same compute", "problems word-problems"),
            "T3.2": ("same epochs", "smollm2 word-problems-smollm2"),
            "T9.4": ("a made-up report", "-" + _DRAWING),
            "T9.5": ("baselines", "table9.5 facts"),
            "T9.6": ("kinds of questions", "-words; it measures nothing"),
        },
    ),
    "Dissertation, chapter 4 (EPIC)": _tables(
        "epic",
        {
            "F4.1": ("effective and ineffective poisons", "effective"),
            "F4.2": ("effective poisons dropped", "transfer"),
            "F4.3": ("gradients of what is dropped and kept", "figure4.3"),
            "F4.4": (
                "sizes of clusters, from scratch",
                "-from scratch no network that can be trained here is fooled (epic/scratch): no poison is effective",
            ),
            "F4.5": ("sizes of clusters, transfer", "transfer"),
            "F4.6": ("success against seconds", "table4.2"),
            "T4.1": ("attacks", "transfer scratch"),
            "T4.2": ("defences", "table4.2 scratch"),
            "T4.3": ("TinyImageNet from scratch", "-its images can't be fetched here, and no loader reads them"),
            "T4.4": ("the strongest attack", "table4.4"),
        },
    ),
    "Dissertation, chapter 5 (SPARE)": _tables(
        "spare",
        {
            "F5.1": ("what is learned first", "digits"),
            "F5.2": ("GradCAM", "-" + _PICTURES),
            "F5.3": ("a shortcut of Restricted ImageNet", "-" + _PICTURES),
            "T5.1": ("methods compared", "table5.1"),
            "T5.2": ("networks that infer groups", "table5.2"),
            "T5.3": ("silhouettes and powers", "table5.3"),
            "T5.4": ("Restricted ImageNet", "table5.4"),
            "T9.7": ("hyperparameters", "-" + _SETTINGS),
            "T9.8": ("classes of Restricted ImageNet", "-" + _SETTINGS),
            "T9.9": ("groups of EIIL on Restricted ImageNet", "-" + _COUNTS),
            "T9.10": ("groups of SPARE on Restricted ImageNet", "-" + _COUNTS),
            "T9.11": ("groups found on CelebA", "-" + _COUNTS),
            "T9.12": ("groups found on Waterbirds", "-" + _COUNTS),
        },
    ),
    "Dissertation, chapter 6 (PDE)": _tables(
        "pde",
        {
            "F6.1": ("overview", "-" + _DRAWING),
            "F6.2": ("the synthetic data", "-" + _DRAWING),
            "F6.3": ("methods in different scenarios", "-" + _DRAWING),
            "F6.4": ("training of ERM and PDE", "synthetic-pure"),
            "F6.5": ("momentum at the first expansion", "figure4"),
            "F6.6": ("accuracy during expansion by rate", "table6"),
            "F9.10": ("ERM with momentum", "synthetic-pure"),
            "F9.11": ("all data at once", "synthetic-pure"),
            "T6.1": ("synthetic data", "table1"),
            "T6.2": ("methods compared", "table2"),
            "T6.3": ("epochs until the best worst group", "table3"),
            "T6.4": ("after each stage", "table4"),
            "T6.5": ("size of an expansion", "table5"),
            "T6.6": ("rate of the expansion", "table6"),
            "T9.13": ("sizes of the warm-up sets", "-" + _SETTINGS),
            "T9.14": ("hyperparameters", "-" + _SETTINGS),
            "T9.15": ("epochs on CelebA", "table3"),
            "T9.16": ("epochs on CivilComments", "table3"),
            "T9.17": ("augmentation", "table11"),
        },
    ),
    "Dissertation, chapter 7 (CLIP)": _tables(
        "clip",
        {
            "F7.1": ("a shortcut of ImageNet", "-" + _PICTURES),
            "F7.2": ("detection", "detection"),
            "F7.3": ("GradCAM of detected shortcuts", "-" + _PICTURES),
            "F7.4": ("GradCAM on Waterbirds", "-" + _PICTURES),
            "F7.5": ("GradCAM on Waterbirds, ViT", "-" + _PICTURES),
            "F7.6": ("GradCAM on ImageNet", "-" + _PICTURES),
            "F9.12": ("GradCAM, can openers", "-" + _PICTURES),
            "F9.13": ("variants of can openers", "-" + _PICTURES),
            "F9.14": ("features of can openers", "-" + _PICTURES),
            "T7.1": ("groups of Waterbirds", "-sizes of data sets, which the loaders' tests compare"),
            "T7.2": ("groups before fine-tuning", "table7.4"),
            "T7.3": ("shortcuts found on ImageNet", "detection"),
            "T7.4": ("fine-tuning on Waterbirds", "table7.4 pretrained"),
            "T7.5": ("fine-tuning on ImageNet", "table7.4"),
            "T9.18": ("terms of the loss", "ablation"),
            "T9.19": (
                "can openers",
                "-its entries are empty in the text that we have, and its photographs can't be fetched here",
            ),
        },
    ),
}
