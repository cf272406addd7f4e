"""Prints the outcome of every use in a tasks module as JSON: ``python outcomes.py MODULE``."""

from __future__ import annotations

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor

ALONE = ("always eager",)
"""Uses that change the app, so that no other may run at the same time."""


def main() -> None:
    """Make every call, most of them at the same time."""
    module = importlib.import_module(sys.argv[1])
    calls = {use: module.calls(f"n{number}")[use] for number, use in enumerate(module.calls(""))}
    with ThreadPoolExecutor(8) as pool:
        started = {use: pool.submit(call) for use, call in calls.items() if use not in ALONE}
        outcomes = {use: future.result() for use, future in started.items()}
    outcomes |= {use: calls[use]() for use in ALONE}
    print(json.dumps(outcomes, default=repr, indent=1))


if __name__ == "__main__":
    main()
