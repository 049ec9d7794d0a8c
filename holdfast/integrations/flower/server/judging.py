"""What a reply is worth; whatever is wrong with it is a fault of its node, or of clients that it answers for, alone."""

from __future__ import annotations

from typing import Any

from holdfast.integrations.flower.messages.wire import sentence, unreadable
from holdfast.integrations.flower.server.intake import Arrival
from holdfast.integrations.flower.server.ledger import Ledger
from holdfast.integrations.flower.server.questions import Answers, Order, Question


def judge(
    order: Order, question: Question, arrival: Arrival, ledger: Ledger
) -> tuple[dict[int, Any], dict[int, tuple[str, str]]]:
    """What clients have answered, and for the others kind and reason of the fault.

    Args:
        order: that the reply answers; of clients that it is not about a node may say what it likes.
        question: of the order.
        arrival: the reply.
        ledger: counts what was refused.
    """
    if arrival.failure:
        return {}, dict.fromkeys(order.clients, ("failed", f"the node failed: {arrival.failure}"))
    refusal, answers = arrival.refusal, Answers({})
    if arrival.content is not None:
        try:
            answers = question.read(order.clients, arrival.content)
        except Exception as error:  # anything can be in a reply, and a reply is less than a round
            refusal = unreadable(error)
    if refusal:
        ledger.strike_node(order.node)
        return {}, dict.fromkeys(order.clients, ("refused", refusal))
    good, bad = dict[int, Any](), dict[int, tuple[str, str]]()
    for client in order.clients:
        if client in answers.bad:
            bad[client] = ("refused", sentence(answers.bad[client]))
            ledger.strike_client(client)
        elif client in answers.good:
            good[client] = answers.good[client]
        elif client in answers.declined:
            bad[client] = ("failed", f"the node says: {sentence(answers.declined[client])}")
        else:
            bad[client] = ("refused", "the reply leaves the client out")
    return good, bad
