"""A worker of the measured app without a supervisor; runs until SIGTERM."""

from __future__ import annotations

import argparse
import signal

from bench.engine_app import app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    with app.worker(concurrency=options.concurrency, threads=options.threads):
        signal.sigwait([signal.SIGTERM, signal.SIGINT])
    app.close()


if __name__ == "__main__":
    main()
