"""Which source files are the user's own."""

from __future__ import annotations

import re

_OTHERS = re.compile(
    r"[\\/](?:site-packages|dist-packages)[\\/]"
    r"|[\\/]lib(?:64|exec)?[\\/]python\d(?:\.\d+)?[\\/]"
    r"|[\\/]Python\d*[\\/]Lib[\\/]"
    r"|[\\/]\.framework[\\/]|[\\/]src[\\/]tidemill[\\/]"
    r"|^<(?!stdin|string|console|ipython)[^>]*>$",
    re.IGNORECASE,
)
_SAMPLE_APP = re.compile(r"[\\/]tidemill[\\/]demo[\\/]\w+\.py$")
"""The application of ``tidemill demo``, which stands for a user's."""


def is_users(file: str) -> bool:
    """Whether a file is the user's own, not part of Python, a package or Tidemill.

    >>> is_users("/srv/shop/pay.py"), is_users("/usr/lib/python3.12/json/decoder.py")
    (True, False)
    >>> is_users("/venv/lib/python3.11/site-packages/httpx/_client.py"), is_users("<frozen importlib._bootstrap>")
    (False, False)
    >>> is_users("/venv/lib/python3.11/site-packages/tidemill/demo/shop.py")
    True
    """
    return _OTHERS.search(file) is None or _SAMPLE_APP.search(file) is not None
