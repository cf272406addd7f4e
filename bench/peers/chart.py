"""Bar charts as small SVG files, readable on light and dark pages.

Pure: converts rows to text. Colours follow the reader's colour scheme; each chart has its own background, so that it is readable
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

Kind = Literal["ours", "peer", "bound"]

WIDTH, LABELS, VALUES, ROW, TOP, MARGIN = 720, 190, 110, 22, 46, 14
_STYLE = """
text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:14px;font-weight:600}.sub{fill:#57606a}
.page{fill:#fff;stroke:#d0d7de}.ours{fill:#0b7285}.peer{fill:#8c9bab}.bound{fill:#dfe4ea;stroke:#8c9bab;stroke-dasharray:3 2}
.range{stroke:#24292f;stroke-width:1.2}.mine{font-weight:600}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.sub{fill:#9aa4af}.page{fill:#161b22;stroke:#3d444d}
.ours{fill:#3bc9db}.peer{fill:#6e7b8a}.bound{fill:#2a313a;stroke:#6e7b8a}.range{stroke:#e6edf3}}
""".replace("\n", "")


class Bar(NamedTuple):
    """The figure of one system: the median and the range over the rounds."""

    label: str
    value: float
    low: float
    high: float
    kind: Kind = "peer"


def bars(title: str, subtitle: str, rows: Sequence[Bar], form: str = ",.0f") -> str:
    """Return a chart of these rows, in this order."""
    height = TOP + ROW * len(rows) + MARGIN
    room = WIDTH - LABELS - VALUES - MARGIN
    most = max((row.high for row in rows), default=0.0)
    scale = room / most if most > 0 else 0.0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="title" x="{MARGIN}" y="22">{escape(title)}</text>',
        f'<text class="sub" x="{MARGIN}" y="38">{escape(subtitle)}</text>',
    ]
    for number, row in enumerate(rows):
        lines += _row(row, TOP + ROW * number, scale, form)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _row(row: Bar, top: int, scale: float, form: str) -> list[str]:
    middle = top + ROW // 2
    length, low, high = (LABELS + max(0.0, it) * scale for it in (row.value, row.low, row.high))
    mine = " mine" if row.kind == "ours" else ""
    lines = [
        f'<text class="label{mine}" x="{LABELS - 8}" y="{middle + 4}" text-anchor="end">{escape(row.label)}</text>',
        f'<rect class="{row.kind}" x="{LABELS}" y="{top + 3}" width="{length - LABELS:.1f}" height="{ROW - 6}" rx="2"/>',
    ]
    if high - low >= 1:
        lines.append(f'<path class="range" d="M{low:.1f} {middle}H{high:.1f}"/>')
    end = max(length, high) + 6
    lines.append(f'<text class="value{mine}" x="{end:.1f}" y="{middle + 4}">{format(row.value, form)}</text>')
    return lines
