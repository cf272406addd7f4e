"""Freshness of the states page, which is generated from the transition table.

With ``TIDEMILL_REWRITE=1`` the test regenerates a stale page instead of failing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.domain.strategies import a_job

from tidemill import Job
from tidemill.cli.jobs import jobs as commands_of_jobs
from tidemill.domain.decide import Action, expected, move
from tidemill.domain.states import ENDED, TRANSITIONS, ExecutionState, JobState
from tidemill.rest.api import all_routes

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "states.md"
REWRITE = "TIDEMILL_REWRITE=1 python3 dev.py test tests/docs/test_states_page.py"


def in_order(states: frozenset[JobState]) -> list[JobState]:
    return [state for state in JobState if state in states]


def transitions() -> str:
    """The transitions as a Mermaid diagram, which GitHub and many editors render."""
    lines = [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> scheduled: enqueue for later",
        "    [*] --> pending: enqueue",
    ]
    lines += [f"    {before} --> {after}" for before in JobState for after in in_order(TRANSITIONS[before])]
    lines += [f"    {state} --> [*]" for state in in_order(ENDED)]
    return "\n".join([*lines, "```"])


def ways() -> str:
    """The transitions as a Markdown table."""
    rows = [
        (before, ", ".join(f"`{after}`" for after in in_order(TRANSITIONS[before]))) for before in JobState
    ]
    return "\n".join(
        ["| From | To |", "|---|---|", *(f"| `{before}` | {after or 'nowhere'} |" for before, after in rows)]
    )


BY_DUTIES = frozenset({Action.EXPIRE, Action.WAKE})
"""Actions that only the workers' duties perform."""


def actions() -> str:
    """The actions on jobs that no worker holds, and the state after each."""
    rows = []
    for action in Action:
        befores = in_order(expected(action))
        after = move(a_job(befores[0]), action).state
        who = "a duty" if action in BY_DUTIES else "you"
        rows.append(f"| `{action}` | {', '.join(f'`{state}`' for state in befores)} | `{after}` | {who} |")
    return "\n".join(["| Action | From | To | By |", "|---|---|---|---|", *rows])


PARTS: dict[str, Callable[[], str]] = {"transitions": transitions, "ways": ways, "actions": actions}


def fresh(page: str) -> str:
    """The page with every generated part regenerated."""

    def made(match: re.Match[str]) -> str:
        return f"<!-- generated: {match[1]} -->\n\n{PARTS[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- generated: (\w+) -->.*?<!-- end -->", made, page, flags=re.DOTALL)


def first_cells(page: str, heading: str) -> list[str]:
    """The first column of the table under a heading."""
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)


def test_the_generated_parts_of_the_page_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TIDEMILL_REWRITE") == "1":
        PAGE.write_text(page := fresh(page), encoding="utf-8")
    if page != fresh(page):
        pytest.fail(f"{PAGE.relative_to(ROOT)} is stale; rewrite it with\n    {REWRITE}", pytrace=False)


def test_every_generated_part_is_on_the_page() -> None:
    assert re.findall(r"<!-- generated: (\w+) -->", PAGE.read_text(encoding="utf-8")) == list(PARTS)


def test_the_diagram_shows_exactly_the_allowed_transitions() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    table = [(before.value, after.value) for before, afters in TRANSITIONS.items() for after in afters]
    assert sorted(drawn) == sorted(table)


def test_every_job_state_is_explained_in_the_order_of_the_code() -> None:
    assert first_cells(PAGE.read_text(encoding="utf-8"), "States of a job") == [
        state.value for state in JobState
    ]


def test_every_execution_state_is_explained_in_the_order_of_the_code() -> None:
    cells = first_cells(PAGE.read_text(encoding="utf-8"), "States of an execution")
    assert cells == [state.value for state in ExecutionState]


def test_every_action_leads_to_the_same_state_from_all_its_start_states() -> None:
    for action in Action:
        assert len({move(a_job(state), action).state for state in expected(action)}) == 1


@pytest.mark.parametrize("action", [action for action in Action if action not in BY_DUTIES])
def test_every_user_action_exists_in_python_in_the_cli_and_over_http(action: Action) -> None:
    verb = action.value.replace("_", "-")
    assert callable(getattr(Job, action.value))
    assert callable(getattr(Job, f"a{action.value}"))
    assert verb in commands_of_jobs.commands
    posted = {act.path for act in all_routes() if act.method == "POST"}
    assert f"/api/jobs/{{id}}/{verb}" in posted


def test_every_action_named_on_the_page_exists() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("<!-- generated: actions -->")[2]
    named = set(re.findall(r"`([a-z_]+)`", section.partition("## States of an execution")[0]))
    assert named <= {action.value for action in Action} | {state.value for state in JobState}


def test_a_stale_page_is_detected() -> None:
    page = fresh(PAGE.read_text(encoding="utf-8"))
    assert fresh(page) == page
    stale = page.replace("    pending --> claimed\n", "")
    assert stale != page
    assert fresh(stale) == page
