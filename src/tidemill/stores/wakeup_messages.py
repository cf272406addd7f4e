"""The text of a wake-up on its way between processes: a JSON list of topics."""

from __future__ import annotations

import json
from collections.abc import Iterable

CHANGE = "change"
"""The topic for anything that has no topic of its own: look at everything."""

RECONNECTED = "reconnected"
"""The topic that a listener reports, with ``change``, after its connection to the store broke and was replaced."""

DISCONNECTED = "disconnected"
"""The topic that a listener reports, with ``change``, when its connection is lost."""

LOCAL = frozenset({RECONNECTED, DISCONNECTED})
"""Topics that a listener adds by itself, and that no message may contain."""


def write_topics(topics: Iterable[str]) -> str:
    """The message with these topics.

    >>> write_topics(["tick", "ready:mail"])
    '["ready:mail","tick"]'
    """
    return json.dumps(sorted(topics), separators=(",", ":"))


def read_topics(message: str) -> frozenset[str]:
    """The topics of a message; any unknown message means that something changed.

    >>> sorted(read_topics('["tick","ready:mail"]')), sorted(read_topics("hello"))
    (['ready:mail', 'tick'], ['change'])
    """
    try:
        topics = json.loads(message)
    except (ValueError, RecursionError):
        return frozenset({CHANGE})
    if not isinstance(topics, list):
        return frozenset({CHANGE})
    return frozenset(topic for topic in topics if isinstance(topic, str))
