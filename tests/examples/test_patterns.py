"""Tests that run each pattern example on every store and check its output."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.examples.running import STORES, said_by

FOLDER = Path(__file__).parents[2] / "examples" / "patterns"

SAID = {
    "mail_and_sync": [
        "sent: Welcome, Ada",
        "synced: 2, errors: [\"customer 3: 'unknown' is not an address\"]",
    ],
    "on_every_server": ["60 checks of this server", "1 old file removed", "left: ['new.part']"],
    "once_across_the_farm": [
        "3 servers, 2 fires, 2 letters",
        "all@shop.example 2026-06-02",
        "all@shop.example 2026-06-03",
    ],
    "chain_in_code": [
        "index_content: 20",
        "index_content: 900",
        "generate_embeddings after index_content: [2.0, 0.5]",
    ],
    "on_demand": [
        "the same job: True",
        "exports/uk.csv: ['name,country,orders', 'ada,uk,36', 'cy,uk,5']",
        "ada: exports/uk.csv",
    ],
    "retry_with_backoff": [
        "back_up: completed, waits ['30 s', '60 s']",
        "CallPartner: completed, waits ['10 s', '120 s']",
        "CallPartner: failed, waits []",
    ],
    "long_running": [
        "after the first attempt: scheduled, ['read', 'understood']",
        "completed after 2 attempts, 100%",
        "contract.pdf: read, understood, stored",
    ],
    "in_stages": [
        "completed: {'Name': 'Ada', 'Work': 'mathematics'}",
        "  warning sections  lines without a heading",
        "review_needed: is this CV right?",
    ],
    "document_approval": [
        "Decision for editors: report.txt has 2 remarks. Publish it?",
        "https://docs.example/report?words=4",
        "memo.txt: not published",
    ],
    "tenants_report": [
        "acme/reports/2026-01.txt: figures of acme",
        "bolt/reports/2026-02.txt: figures of bolt",
        "acme sees 4 jobs, all of acme",
    ],
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", sorted(SAID))
def test_a_pattern_runs_on_every_store(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    said = said_by(FOLDER / f"{name}.py", kind, tmp_path, request)
    for line in SAID[name]:
        assert line in said


def test_every_pattern_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SAID)
