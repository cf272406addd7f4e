"""Tidemill beside its peers on W1 to W8, in one run; with ``--write`` the page, its charts and the raw figures.

    python3 dev.py bench peers [--rounds N] [--names a,b] [--only w1,w3,w5] [--into FOLDER] [--write] [--quick] [--render]

Peers are installed into the folder first if they are not there (``--no-install``: they are left out instead). PostgreSQL comes from the wheel,
Redis from the machine; without it the peers on Redis are left out, aloud. ``--quick`` is a smoke run of one round, below five minutes.
``--render`` measures nothing and writes the page again from ``docs/benchmarks/results.json``, after words in the notes or the listing were
changed. Linux only.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import engine
from bench.engine_run import say
from bench.engine_sides import ROOT, Failed
from bench.peers import install, page, record
from bench.peers.listing import USUAL

DOCS = ROOT / "docs"
NOTES = ROOT / "bench" / "peers" / "notes.md"
RAW = DOCS / "benchmarks" / "results.json"
INTO = ROOT / ".cache" / "peers"


def write(results: Mapping[str, Any]) -> None:
    """The page, its charts and the raw figures."""
    notes = page.read_notes(NOTES.read_text(encoding="utf-8"))
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, picture in page.pictures(results).items():
        (RAW.parent / name).write_text(picture, encoding="utf-8")
    (DOCS / "benchmarks.md").write_text(page.page(results, notes), encoding="utf-8")
    for what in page.unexplained(results, notes):
        say(f"{what}: Tidemill is not first, and {NOTES.relative_to(ROOT)} has no words under ## {what}")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py bench peers", description=(__doc__ or "").splitlines()[0])
    engine.add_options(parser, USUAL)
    parser.set_defaults(into=INTO)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md and what it shows")
    parser.add_argument("--json", type=Path, help="write the raw figures here as well")
    parser.add_argument("--no-install", action="store_true", help="leave out who is not installed")
    parser.add_argument("--render", action="store_true", help="measure nothing, write the page again")
    return engine.read_options(parser)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything; what ``results.json`` will hold."""
    said = [] if options.no_install else install.install_all(install.wanted(options.names), options.into)
    failures = [record.plain(f"not installed: {it}") for it in said]
    with engine.stage(options, options.names) as set_:
        sides, left_out = engine.sides_of(options, set_, options.names)
        about = record.conditions(set_, sides, options.into)
        run = engine.measure(options, set_, sides)
        print(engine.text(run))
        return record.results(run, about, [*left_out, *failures], quick=options.quick)


def main() -> None:
    options = read_options()
    if options.render:
        write(record.reworded(json.loads(RAW.read_text(encoding="utf-8"))))
        return
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # workers are ended on the way out
    try:
        results = measured(options)
    except Failed as failure:
        raise SystemExit(f"bench peers: {failure}") from None
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.write:
        write(results)


if __name__ == "__main__":
    main()
