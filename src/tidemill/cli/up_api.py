"""The HTTP API's own process under ``tidemill up``, started by it alone: ``python -m tidemill.cli.up_api --app …``.

The parent opens the socket, so that a restart refuses no client, and creates the token, so that it stays the same.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from typing import Any

from tidemill.cli.oidc_options import oidc_setting
from tidemill.engine.app_lookup import find_app
from tidemill.engine.log_formats import LogOutput, add_log_arguments, write_output
from tidemill.engine.supervisor.sidecar import say, tie
from tidemill.errors import TidemillError


def main(words: Sequence[str] | None = None) -> int:
    """Run the API process."""
    parser = argparse.ArgumentParser(prog="python -m tidemill.cli.up_api", description=__doc__)
    parser.add_argument("--app", required=True, help="where the app is: module:attribute")
    parser.add_argument("--fd", type=int, required=True, help="the socket to serve on")
    parser.add_argument("--host", required=True, help="the address it listens on")
    parser.add_argument(
        "--life", type=int, required=True, help="a pipe that is open as long as the parent lives"
    )
    parser.add_argument("--tell", type=int, required=True, help="a pipe to write one line to")
    parser.add_argument("--parent", type=int, required=True, help="its process id")
    parser.add_argument("--allow-anonymous-create", action="store_true")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--oidc", help="settings of single sign-on as JSON, without the secret")
    add_log_arguments(parser)
    given = parser.parse_args(words)
    tie(given.life, given.parent)
    token = sys.stdin.readline().strip() or None
    try:
        app: Any = find_app(given.app)
        write_output(LogOutput.taken(vars(given)))
        try:
            _serve(app, given, token)
        finally:
            app.close()
    except (TidemillError, ModuleNotFoundError) as error:
        say(given.tell, {"error": str(error)})
        return 1
    return 0


def _serve(app: Any, given: argparse.Namespace, token: str | None) -> None:
    sock = socket.socket(fileno=given.fd)
    sock.set_inheritable(False)
    app.serve(
        given.host,
        sock=sock,
        token=token,
        allow_anonymous_create=given.allow_anonymous_create,
        read_only=given.read_only,
        **oidc_setting(given.oidc),
        announce=lambda serving: say(given.tell, {"url": serving.url, "token": serving.token}),
    )


if __name__ == "__main__":
    sys.exit(main())
