"""A small world of facts for S2L: topics of unequal frequency, whose answers are equally hard and responses are not.

An example asks for a fact about one of 12 entities in one of 16 topics. The response is some words of style, drawn
evenly from a window of the topic's own, and then the answer. How many such words there are and how many they are drawn
from differ by topic, so the losses of topics run differently, which is all that S2L gets to see. A model is judged by
the answers alone, with equal weight on all topics, so what counts is how many facts a subset covers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.finetuning.language_models.tokens import TokenPairs
from holdfast.streams import numpy_stream

Ints = NDArray[np.int64]

TOPICS, ENTITIES, SOURCES = 16, 12, 4
HEAD, TAIL = 4, 8  # the most and the least frequent topics
_VERBS, _FILLERS, _STYLES, _ANSWERS = 3, 20, 80, 64
_END, _SEPARATOR = 0, 1
_FIRST_VERB = 2
_FIRST_FILLER = _FIRST_VERB + _VERBS * TOPICS
_FIRST_ENTITY = _FIRST_FILLER + _FILLERS
_FIRST_STYLE = _FIRST_ENTITY + ENTITIES
_FIRST_ANSWER = _FIRST_STYLE + _STYLES
VOCABULARY = _FIRST_ANSWER + _ANSWERS
LONGEST = 16


@dataclass(frozen=True, eq=False)
class FactExamples:
    """Examples of the world.

    Attributes:
        tokens: prompts and responses.
        topics: of each, the most frequent is 0.
        facts: number of the fact that each asks for.
        answer_places: where in each example the answer stands.
    """

    tokens: TokenPairs
    topics: Ints
    facts: Ints
    answer_places: Ints

    @property
    def sources(self) -> Ints:
        """Of each example: sources hold every fourth topic."""
        return self.topics % SOURCES


@dataclass(frozen=True, eq=False)
class World:
    """Facts to learn from and to be asked about.

    Attributes:
        train: 6,000 examples.
        test: every fact, asked anew three times.
    """

    train: FactExamples
    test: FactExamples


def make_world(seed: int, examples: int = 6000) -> World:
    """The world of a seed."""
    draw = numpy_stream(seed, "world")
    styles = draw.permutation([(words, window) for words in (1, 2, 3, 4) for window in (1, 3, 10, 40)])
    starts = [int(draw.integers(_STYLES - window + 1)) for _, window in styles]
    answers = np.stack([draw.permutation(_ANSWERS)[:ENTITIES] for _ in range(TOPICS)])
    share = np.arange(1, TOPICS + 1) ** -1.3
    topics = draw.choice(TOPICS, examples, p=share / share.sum())
    entities = draw.integers(ENTITIES, size=examples)
    every_topic, every_entity = (part.ravel() for part in np.indices((TOPICS, ENTITIES)))

    def ask(topics: Ints, entities: Ints) -> FactExamples:
        rows, prompts, places = list[Ints](), list[int](), list[int]()
        for topic, entity in zip(topics.tolist(), entities.tolist(), strict=True):
            words, window = (int(part) for part in styles[topic])
            verb = _FIRST_VERB + _VERBS * topic + draw.integers(_VERBS)
            fillers = _FIRST_FILLER + draw.integers(_FILLERS, size=draw.integers(3))
            style = _FIRST_STYLE + starts[topic] + draw.integers(window, size=words)
            answer = _FIRST_ANSWER + answers[topic, entity]
            prompt = [verb, *fillers, _FIRST_ENTITY + entity, _SEPARATOR]
            rows.append(np.array([*prompt, *style, answer, _END]))
            prompts.append(len(prompt))
            places.append(len(prompt) + words)
        flat, ends = np.concatenate(rows).astype(np.int32), np.cumsum([len(row) for row in rows])
        learned = [np.arange(len(row)) >= given for row, given in zip(rows, prompts, strict=True)]
        tokens = TokenPairs(flat, ends, np.concatenate(learned), _END)
        return FactExamples(tokens, topics, topics * ENTITIES + entities, np.array(places))

    return World(ask(topics, entities), ask(np.tile(every_topic, 3), np.tile(every_entity, 3)))
