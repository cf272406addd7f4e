"""``python -m tools.reference``: write the generated pages."""

from __future__ import annotations

from tools.reference import PAGES, write

print(f"{len(PAGES)} pages, changed: {', '.join(write()) or 'none'}")
