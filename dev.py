#!/usr/bin/env python3
"""Front of the contributor tools: ``python3 dev.py --help``.

It needs only Python. The tools are in ``tools/`` and use the standard library until they have created an environment in
``.venv`` (``.venv-X.Y`` for ``--python X.Y``). An old Python can still parse this file, so that it prints one sentence
instead of a syntax error.
"""

from __future__ import annotations

import sys

# No bytecode in the source folders.
sys.dont_write_bytecode = True

from tools.pythons import refuse_unsupported  # noqa: E402
from tools.terminal import Stop  # noqa: E402


def main() -> int:
    """Run a command and return its exit code."""
    try:
        refuse_unsupported()
        from tools.commands import main as run

        return run(sys.argv[1:])
    except Stop as stop:
        print(f"dev.py: {stop}", file=sys.stderr)
        return stop.code
    except OSError as problem:
        print(f"dev.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
