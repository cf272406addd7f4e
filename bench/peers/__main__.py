"""Comparison of Tidemill with its peers on W1 to W11, W13 and W14.

    python3 dev.py bench peers [--rounds N] [--names a,b] [--only w1,w3,w5] [--into FOLDER] [--write] [--quick] [--render]

``--write`` writes the page, its charts and the raw figures. Peers that are missing in the folder are installed first, or left out
with ``--no-install``. PostgreSQL comes from the wheel, Redis from the machine; without Redis, its peers are left out and reported.
``--quick`` is a smoke test of one round that takes less than five minutes. ``--render`` measures nothing: it writes the page again
from ``docs/benchmarks/results.json``, after the text of the notes or the listing has changed. Linux only.
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
    """Write the page, its charts and the raw figures."""
    notes = page.read_notes(NOTES.read_text(encoding="utf-8"))
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, picture in page.pictures(results).items():
        (RAW.parent / name).write_text(picture, encoding="utf-8")
    (DOCS / "benchmarks.md").write_text(page.page(results, notes), encoding="utf-8")
    for what in page.unexplained(results, notes):
        say(f"{what}: Tidemill is not first; explain it in {NOTES.relative_to(ROOT)} under ## {what}")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dev.py bench peers", description=(__doc__ or "").splitlines()[0])
    engine.add_options(parser, USUAL)
    parser.set_defaults(into=INTO)
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks.md, its charts and the raw figures"
    )
    parser.add_argument("--json", type=Path, help="also write the raw figures to this file")
    parser.add_argument("--no-install", action="store_true", help="leave out peers that are not installed")
    parser.add_argument(
        "--render", action="store_true", help="measure nothing; write the page from the stored figures"
    )
    return engine.read_options(parser)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything; return the content of ``results.json``."""
    problems = [] if options.no_install else install.install_all(install.wanted(options.names), options.into)
    failures = [record.plain(f"not installed: {problem}") for problem in problems]
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
    # Exits through the context managers, which stop the workers.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
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
