"""Snippets that enqueue the same job again with Python or curl."""

from __future__ import annotations

import json
import keyword
import re
import shlex
from collections.abc import Mapping
from typing import Any


def as_python(task: str, args: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the Python call that enqueues the job.

    >>> as_python("shop.send", {"to": "ada", "size": 2}, {"queue": "mail"})
    "send.using(queue='mail').enqueue(to='ada', size=2)"
    >>> as_python("send", {"odd name": None}, {})
    "send.enqueue(**{'odd name': None})"
    """
    name = re.sub(r"\W", "_", re.split(r"[.:/]", task)[-1]) or "task"
    if name[0].isdigit() or keyword.iskeyword(name):
        name = f"task_{name}"
    using = f".using({_keywords(options)})" if options else ""
    return f"{name}{using}.enqueue({_keywords(args)})"


def as_curl(address: str, task: str, args: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the curl command that creates the job.

    >>> print(as_curl("https://jobs.example/api/jobs", "send", {"to": "o'neil"}, {}))
    curl -X POST https://jobs.example/api/jobs \\
      -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\
      -d '{"task": "send", "args": {"to": "o'"'"'neil"}}'
    """
    body = json.dumps({"task": task, "args": args, **options}, ensure_ascii=False)
    return (
        f"curl -X POST {shlex.quote(address)} \\\n"
        "  -H \"Authorization: Bearer $KEY\" -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(body)}"
    )


def _keywords(values: Mapping[str, Any]) -> str:
    plain = {
        name: value for name, value in values.items() if name.isidentifier() and not keyword.iskeyword(name)
    }
    rest = {name: value for name, value in values.items() if name not in plain}
    arguments = [f"{name}={value!r}" for name, value in plain.items()]
    if rest:
        arguments.append(f"**{rest!r}")
    return ", ".join(arguments)
