"""The benchmarks page, generated from ``results.json`` and ``notes.md``.

Pure: it measures nothing and reads no file. Hand-written text is kept in the notes, so that the page can be regenerated at any time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bench.engine_table import NOISY, OURS, OURS_SQLITE, unquiet
from bench.peers import chart
from bench.peers.figures import (
    BESIDE,
    OWN,
    STICKS,
    SUBJECTS,
    Results,
    Row,
    cell,
    first,
    glances,
    line,
    rows,
    scales,
    shares,
    store_of,
)

CHARTS = ("w1", "w2", "w3", "w4", "w5", "w7")
STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "redis": "Redis"}
_HEADING = re.compile(r"^## +(\w+) *$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def read_notes(text: str) -> dict[str, str]:
    """Return the text under each ``## heading``."""
    parts = _HEADING.split(_COMMENT.sub("", text))
    return {
        name: words.strip() for name, words in zip(parts[1::2], parts[2::2], strict=True) if words.strip()
    }


def unexplained(results: Results, notes: Mapping[str, str]) -> list[str]:
    """Return the workloads in which Tidemill is not first and that have no note."""
    measured = [what for what in SUBJECTS if what != "w8" and what in results["workloads"]]
    return [what for what in measured if not first(results, what) and what not in notes]


def page(results: Results, notes: Mapping[str, str]) -> str:
    """Return the whole page."""
    parts = [_head(results), notes.get("about", ""), _glance(results)]
    for what, subject in SUBJECTS.items():
        if what in results["workloads"]:
            picture = [f"![{subject.title}](benchmarks/{what}.svg)"] if what in CHARTS else []
            table = (
                _scale(results)
                if what == "w8"
                else _shares(results, what)
                if subject.variants
                else _table(results, what)
            )
            words = [notes[what]] if what in notes else []
            parts.append("\n\n".join([f"## {subject.title}", subject.about, *picture, table, *words]))
    parts += [_promises(results), _settings(results), _conditions(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def pictures(results: Results) -> dict[str, str]:
    """Return the charts by file name."""
    charts = {}
    for what in CHARTS:
        if what in results["workloads"]:
            subject = SUBJECTS[what]
            drawn = [
                chart.Bar(row.name, row.value, row.low, row.high, _kind(row.name))
                for row in rows(results, what)
            ]
            subtitle = f"{subject.unit}; {_rounds(results)}"
            charts[f"{what}.svg"] = chart.bars(subject.title, subtitle, drawn, subject.main.form)
    return charts


def _kind(name: str) -> chart.Kind:
    return "ours" if name in OWN else "bound" if name in STICKS else "peer"


def _rounds(results: Results) -> str:
    count = results["rounds"]
    return "one round" if count == 1 else f"median of {count} rounds"


def _head(results: Results) -> str:
    about = results["conditions"]
    smoke = (
        '\n\n!!! warning "A smoke test"\n'
        "    One round with few jobs shows that every program works, not how fast it is. Do not quote these figures or their ratios:\n"
        "    other such runs on a busy machine gave the opposite result for several of them."
        if results["quick"]
        else ""
    )
    busy, all_ = unquiet(results["workloads"])
    disturbed = (
        f" Other processes used more than {NOISY:g} core during {busy} of {all_} measurements."
        if busy
        else ""
    )
    return (
        "# Benchmarks\n\n"
        "Tidemill compared with other job systems: the same job, payload and machine, in one run that measures all of them in turn.\n"
        "`python3 dev.py bench peers --write` generates this page from [the raw figures](benchmarks/results.json); the text about each workload\n"
        "is in `bench/peers/notes.md`.\n\n"
        f"**{_rounds(results).capitalize()}**, {about['date']}, commit `{about['commit']}`, {about['machine']['cores']} cores.{disturbed}"
        f"{smoke}"
    )


def _glance(results: Results) -> str:
    heads = [
        "",
        "Tidemill",
        "best peer on the same store",
        "ratio",
        "best peer on any store",
        "ratio",
    ]
    parts = ["## At a glance"]
    for ours in (OURS, OURS_SQLITE):
        lines_of = glances(results, ours) if ours in results["sides"] else []
        if not lines_of:
            continue
        lines = [line(heads), line(["---", "---:", "---", "---:", "---", "---:"])]
        for it in lines_of:
            subject = SUBJECTS[it.what]
            shown = f"{it.ours:{subject.main.form}} {subject.main.title.replace('p50, ', '')}"
            ratios = (cell(value if subject.ratio else None, ".2f") for value in (it.to_same, it.to_any))
            same, best = ratios
            lines.append(line([subject.title, shown, it.same or "–", same, it.any or "–", best]))
        parts.append(f"On {STORES[store_of(results, ours)]}:\n\n" + "\n".join(lines))
    more = " and W9 to W11" if any(SUBJECTS[what].variants for what in results["workloads"]) else ""
    less = "W5, W7 and W14" if "w14" in results["workloads"] else "W5 and W7"
    parts.append(
        f"A ratio is Tidemill's figure divided by the other's in the same round (the median of the rounds): for W1 to W4{more} above 1 is "
        f"better, for {less} below 1.\nThe systems give different guarantees; see [what each keeps and guarantees](#what-each-keeps-and-guarantees)."
    )
    return "\n\n".join(parts)


def _table(results: Results, what: str) -> str:
    subject = SUBJECTS[what]
    heads = ["", "store", subject.main.title, "±"]
    heads += ["vs. best peer"] if subject.ratio else []
    heads += ["vs. yardstick"] if _measured_by_yardstick(results, what) else []
    heads += [column.title for column in subject.beside]
    lines = [line(heads), line(["---", "---", *["---:"] * (len(heads) - 2)])]
    lines += [_row(results, what, row) for row in rows(results, what)]
    failed = [name for name, rounds in results["workloads"][what].items() if not any(rounds)]
    words = f"\n\nFailed in every round: {', '.join(failed)}." if failed else ""
    return "\n".join(lines) + words


def _measured_by_yardstick(results: Results, what: str) -> bool:
    return any(stick in results["workloads"][what] for stick in STICKS)


def _row(results: Results, what: str, row: Row) -> str:
    subject = SUBJECTS[what]
    name = f"**{row.name}**" if row.name in OWN else f"*{row.name}*" if row.name in STICKS else row.name
    cells = [
        name,
        STORES[store_of(results, row.name)],
        f"{row.value:{subject.main.form}}",
        cell(row.spread, ".0%"),
    ]
    cells += [cell(row.to_peer, ".2f")] if subject.ratio else []
    cells += [cell(row.to_stick, ".2f")] if _measured_by_yardstick(results, what) else []
    beside = zip(row.cells, subject.beside, strict=True)
    return line(cells + [cell(value, column.form) for value, column in beside])


def _scale(results: Results) -> str:
    sizes = results["sizes"]
    heads = ["", *(f"{beside}, jobs/s" for beside in BESIDE), "finished / empty", "pending / empty"]
    lines = [line(heads), line(["---", *["---:"] * 5])]
    for name, rates, parts in scales(results):
        shown = f"**{name}**" if name in OWN else name
        lines.append(line([shown, *(cell(it, ",.0f") for it in rates), *(cell(it, ".0%") for it in parts)]))
    return (
        f"{sizes['finished']:,.0f} finished or {sizes['pending']:,.0f} pending jobs in addition. A dash: the system keeps no history, or has no "
        "call to build the backlog.\n\n" + "\n".join(lines)
    )


def _shares(results: Results, what: str) -> str:
    variants = SUBJECTS[what].variants
    heads = ["", "store", *variants, *(f"{which}, jobs/s" for which in variants)]
    lines = [line(heads), line(["---", "---", *["---:"] * (len(heads) - 2)])]
    for name, parts, rates in shares(results, what):
        shown = f"**{name}**" if name in OWN else name
        cells = [*(cell(it, ".0%") for it in parts), *(cell(it, ",.0f") for it in rates)]
        lines.append(line([shown, STORES[store_of(results, name)], *cells]))
    return "\n".join(lines)


def _promises(results: Results) -> str:
    heads = ["", "store", "history", "result", "when a worker dies in a job", "an accepted job survives"]
    lines = [line(heads), line(["---"] * len(heads))]
    for name, side in results["sides"].items():
        promise = side["promise"]
        shown = f"**{name}**" if side["ours"] else name
        cells = [promise["history"], promise["result"], promise["worker_dies"], promise["durable"]]
        lines.append(line([shown, STORES[side["store"]], *cells]))
    return (
        "## What each keeps and guarantees\n\nAs measured here. For the peers, this follows their documentation and source; no worker was killed to "
        "verify it.\n\n" + "\n".join(lines)
    )


def _settings(results: Results) -> str:
    lines = [line(["", "versions", "concurrency", "settings"]), line(["---", "---", "---:", "---"])]
    for name, side in results["sides"].items():
        lines.append(
            line(
                [
                    name,
                    ", ".join(side["packages"]),
                    str(side["concurrency"]),
                    side["settings"] or "default",
                ]
            )
        )
    parts = ["## Versions and settings", "\n".join(lines)]
    if results["left_out"]:
        parts.append("Left out of this run:\n\n" + "\n".join(f"- {it}" for it in results["left_out"]))
    if results["failures"]:
        parts.append("What failed:\n\n" + "\n".join(f"- {it}" for it in results["failures"]))
    return "\n\n".join(parts)


def _conditions(results: Results) -> str:
    about, sizes = results["conditions"], results["sizes"]
    machine, versions = about["machine"], about["versions"]
    facts = [
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB, {machine['system']}. Servers, enqueuers and workers share it.",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items() if version) + ".",
        f"PostgreSQL: {about['postgres']}. Redis: {about['redis']}.",
        f"Drains: {sizes['jobs']:,.0f} jobs, fewer for slow systems. Every round measures all systems in turn, every second round in reverse order.",
        'The job records the time of its start in 24 bytes of shared memory and returns `{"ok": true}`.',
        'Its payload is `{"user_id": 123, "email": "a@example.com"}`, with another number for each job.',
        "The concurrency of each peer was the best of a few earlier trial drains; it was not tuned again for this run.",
        "The yardstick is bare SQL without limits, retries, leases or heartbeats: W1 and W2 insert rows, W3 and W4 move them to history.",
        "It is an upper bound for systems that keep history; one that deletes its rows may exceed it.",
        "Python had compiled Tidemill and every peer before the measurement.",
        "`±` is half the range over the rounds. Everything ran on loopback.",
    ]
    return "## Conditions\n\n" + "\n".join(f"- {fact}" for fact in facts)
