"""Whether what a federation chose is a choice: lambda inside its candidates, an attack of the strength wanted."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.federated.checks import has_examples
from holdfast.federated.personalization.adversarial import TARGET, TOO_STRONG, craft
from holdfast.federated.personalization.ditto.adaptive import AdaptiveDitto
from holdfast.federated.personalization.transferability import Transferability
from holdfast.federated.result import FederationResult
from holdfast.training.health.check import Check, Finding, Health

LAMBDA_EDGE = Check(
    "lambda at the edge",
    0.75,
    None,
    "above",
    "where most clients take the end of what they may try, the best lambda may lie beyond it",
    "give candidates beyond that end (--ditto.candidates)",
)
WEAK_ATTACK = Check(
    "attack too weak",
    TARGET,
    0.05,
    "below",
    "the document wants 30 to 50 % of the training examples to fool the shared model; examples that fool nobody say as "
    "little as clean ones, which is an ablation that loses",
    "raise the budget (--transferability.epsilon)",
)
STRONG_ATTACK = Check(
    "attack too strong",
    TOO_STRONG,
    None,
    "above",
    "the document wants 30 to 50 % of the training examples to fool the shared model; where nearly all do, the "
    "personal model is held to the shared model's mistakes everywhere",
    "lower the budget (--transferability.epsilon), or let it be searched (--transferability.search)",
)
_ATTACKED = 500  # examples: a share of them has a standard error of two points


def lambda_at_edge(chosen: Tensor, lambdas: tuple[float, ...], candidates: tuple[float, ...]) -> Finding | None:
    """The share of clients that take the smallest or the largest candidate most often, whichever are more.

    Args:
        chosen: how often each client chose each lambda, shape (clients, lambdas).
        lambdas: all that can be had, ascending.
        candidates: those that a client tries.

    Returns:
        What was found; None where there are no two candidates, or nobody chose.
    """
    able = chosen[chosen.sum(1) > 0]
    if len(set(candidates)) < 2 or not len(able):
        return None
    most = torch.tensor(lambdas, dtype=torch.float64)[able.argmax(1)]
    ends = {end: int((most == end).sum()) for end in (min(candidates), max(candidates))}
    end = max(ends, key=lambda value: ends[value])
    which = "smallest" if end == min(candidates) else "largest"
    return LAMBDA_EDGE.finding(
        ends[end] / len(able),
        f"{ends[end]} of {len(able)} clients chose the {which} candidate, lambda = {end:g}",
    )


def attack_strength(fooled: float, epsilon: float) -> list[Finding]:
    """How strong an attack on the shared model is.

    Args:
        fooled: share of the training examples that fool the shared model.
        epsilon: the budget.
    """
    sentence = (
        f"with a budget of {epsilon:.3g} the attack fools the shared model on {100 * fooled:.0f} % of training examples"
    )
    return [WEAK_ATTACK.finding(fooled, sentence), STRONG_ATTACK.finding(fooled, sentence)]


def federation_health(outcome: FederationResult) -> Health:
    """The checks of a federation that is over; nothing is checked on examples that are on other machines."""
    runtime, found = outcome.runtime, list[Finding]()
    if not has_examples(runtime.clients):
        return Health()
    benign = torch.ones(len(outcome.joined), dtype=torch.bool)
    benign[outcome.malicious] = False
    for method in (*runtime.alongside, *runtime.joint, *runtime.post_hoc.values()):
        if isinstance(method, AdaptiveDitto):
            chosen = method.chosen(runtime.stores[method.label], runtime.training)[benign]
            found += [one for one in [lambda_at_edge(chosen, method.lambdas, method.candidates)] if one is not None]
        if isinstance(method, Transferability) and method.adversarial and method.on == "adversarial":
            found += attack_strength(_fooled(outcome, method), method.epsilon)
    return Health.of(found)


def _fooled(outcome: FederationResult, method: Transferability) -> float:
    """The share of training examples, client after client, whose adversarial versions fool the shared model."""
    runtime = outcome.runtime
    clients = runtime.clients.train.counts.cumsum(0).lt(_ATTACKED).nonzero().flatten()
    clients = torch.arange(min(len(clients) + 1, len(runtime.clients)))
    crafted = craft(outcome.network, outcome.weights, runtime.clients.train, clients, method.attack)
    right_before = outcome.network.correct(crafted.clean_logits, crafted.labels)
    fooled = ~outcome.network.correct(crafted.logits, crafted.labels)
    return float(fooled[right_before].double().mean()) if bool(right_before.any()) else 1.0
