"""No credentials in the repository: private keys, tokens of services, and keys of ours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_SECRETS = re.compile(
    rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\n"
    rb"|\bAKIA[0-9A-Z]{16}\b"
    rb"|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    rb"|\bxox[abprs]-[A-Za-z0-9-]{20,}"
    rb"|\bsk_live_[A-Za-z0-9]{20,}"
    rb"|\bpypi-[A-Za-z0-9_-]{60,}"
)


def test_the_repository_contains_no_credentials() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name]
    assert len(names) > 100
    found = [
        name for name in names if (ROOT / name).is_file() and _SECRETS.search((ROOT / name).read_bytes())
    ]
    assert found == []
