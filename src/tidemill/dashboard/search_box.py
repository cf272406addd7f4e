"""Text of the search box on the jobs page, and the conditions that it names.

Pure. A token is ``facet:value``, ``took>5s`` or free text; quotes hold a value with spaces together.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FACETS = {
    "task": "name of a task",
    "queue": "name of a queue",
    "tenant": "name of a tenant",
    "status": "such as failed or running",
    "tag": "a tag",
    "error": "class of the error, such as ConnectionError",
    "group": "fingerprint of an error group",
    "arg.": "value of an argument, such as arg.account:42",
    "reference": "such as reference:user:42",
    "metadata.": "value of a metadata key, such as metadata.customer:acme",
    "worker": "name of a worker",
    "took>": "run time of the last execution, such as took>5s",
    "since": "created since, such as 2h or 2026-03-01",
    "until": "created until",
    "schedule": "key of a schedule",
    "definition": "key of a definition",
    "flow": "id of a flow or batch",
    "parent": "id of a job's parent",
    "correlation": "a correlation id",
}
"""The facets, as the user writes them, with what follows."""

_PARAMETERS = {
    "state": "status",
    "group": "error_group",
    "parent": "parent_id",
    "correlation": "correlation_id",
}
_PLAIN = frozenset(name for name in FACETS if name[-1].isalpha()) | {"state", "metadata"}
_TOKEN = re.compile(
    r'(?:(?P<name>[A-Za-z_]+(?:\.[^\s:="]+)?)(?P<sign>[:>]))?(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]+)|(?=\s|$))'
)


class BoxInput(NamedTuple):
    """The conditions in a text, as query parameters, and what is wrong with it."""

    pairs: list[tuple[str, str]]
    wrong: str | None = None


def read_box(text: str) -> BoxInput:
    """Parse the text of the search box.

    >>> read_box("task:send arg.account:42 took>5s card expired").pairs
    [('task', 'send'), ('arg', 'account=42'), ('took', '5s'), ('text', 'card expired')]
    >>> read_box("colour:red").wrong.partition(";")[0]
    "unknown facet 'colour:'"
    """
    pairs: list[tuple[str, str]] = []
    words: list[str] = []
    for token in _TOKEN.finditer(text):
        name, value = token["name"], token["quoted"] if token["quoted"] is not None else token["bare"] or ""
        if name is None:
            words += [value] if value else []
            continue
        pair = _pair(name, token["sign"], value)
        if isinstance(pair, str):
            return BoxInput([], pair)
        pairs.append(pair)
    if words:
        pairs.append(("text", " ".join(words)))
    return BoxInput(pairs)


def _pair(name: str, sign: str, value: str) -> tuple[str, str] | str:
    """Return the query parameter of one token, or what is wrong with it."""
    facet, _, key = name.partition(".")
    facet = facet.lower()
    shown = f"{name}{sign}"
    if not value:
        return f"{shown} has no value; write {shown}VALUE"
    if facet in ("arg", "metadata") and key and sign == ":":
        return facet, f"{key}={value}"
    if facet == "took" and not key:
        return ("took", value) if sign == ">" else "write took>5s for jobs that took longer than 5 s"
    if facet in _PLAIN and not key and sign == ":":
        return _PARAMETERS.get(facet, facet), value
    facets = "task:, queue:, tenant:, status:, tag:, error:, group:, arg.NAME:, reference:, metadata.NAME:, worker:, took>, since:, until:"
    return f"unknown facet {shown!r}; expected one of {facets}, or put the text in quotes to search for it"


def as_token(name: str, value: str) -> str:
    """Return a condition as the user would write it.

    >>> as_token("arg", "account=42"), as_token("took", "5s"), as_token("task", "send mail")
    ('arg.account:42', 'took>5s', 'task:"send mail"')
    """
    facet = {parameter: written for written, parameter in _PARAMETERS.items() if written != "state"}.get(
        name, name
    )
    if name in ("arg", "metadata"):
        key, _, value = value.partition("=")
        facet = f"{name}.{key}"
    sign = ">" if name == "took" else ":"
    quoted = f'"{value}"' if " " in value else value
    return quoted if name == "text" else f"{facet}{sign}{quoted}"
