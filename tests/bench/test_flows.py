"""The benchmark of flows runs every case with small numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.flow_peers.run import PEERS
from bench.flows_cases import CASES

ROOT = Path(__file__).resolve().parents[2]


def run_flows(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.flows", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.long
def test_every_case_has_a_figure_on_both_stores(postgres_url: str, tmp_path: Path) -> None:
    words = ["--rounds", "1", "--large", "30", "--signals", "2", "--waiting", "100", "--peers", ""]
    done = run_flows("--postgres", postgres_url, *words, "--json", str(tmp_path / "figures.json"))
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures) == ["postgres", "sqlite"]
    for side in figures.values():
        assert list(side) == list(CASES)
        assert all(side.values())
        assert side["threads-of-1000"][0] <= 5  # 30 functions wait
    assert "signal, p99" in done.stdout


def test_an_unknown_case_and_an_unknown_peer_are_refused() -> None:
    case = run_flows("--only", "chain", "--peers", "")
    assert case.returncode == 2
    assert "unknown case 'chain'" in case.stderr
    peer = run_flows("--peers", "temporal")
    assert peer.returncode == 1
    assert "unknown peer 'temporal'; expected one of dbos, celery" in peer.stderr


@pytest.mark.parametrize("name", PEERS)
def test_the_cases_of_the_peers_are_cases_of_ours(name: str) -> None:
    program = (ROOT / "bench" / "flow_peers" / PEERS[name][1]).read_text()
    table = program[program.index("CASES: ") : program.index("def main")]
    cases = [
        line.partition('"')[2].partition('"')[0] for line in table.splitlines() if line.startswith('    "')
    ]
    assert cases
    assert set(cases) <= CASES.keys()
