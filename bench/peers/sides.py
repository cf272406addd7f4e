"""The peers as sides of the comparison, with the reasons for omissions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.engine_sides import ROOT, Failed, Side
from bench.engine_storage import Database, File, Server, Storage
from bench.peers import install
from bench.peers.listing import ENVIRONMENTS, PEERS, Peer
from bench.peers.redis import RedisServer

PROGRAMS = Path(__file__).resolve().parent / "programs"


def peers(
    names: Sequence[str], into: Path, server: Server | None, redis: RedisServer | None, files: Path
) -> tuple[list[Side], list[str]]:
    """Return the sides, and a sentence for each named peer that is left out."""
    sides, left_out = [], []
    for name in names:
        if name not in PEERS:
            raise Failed(f"unknown peer {name!r}; expected one of {', '.join(PEERS)}")
        peer = PEERS[name]
        if not install.ready(ENVIRONMENTS[peer.environment], into):
            left_out.append(f"{name}: not installed; run: python -m bench.peers.install {name} --into FOLDER")
        elif (storage := _storage(peer, server, redis, files)) is None:
            left_out.append(f"{name}: {peer.store} is not available")
        else:
            sides.append(_side(peer, storage, into))
    return sides, left_out


def _storage(peer: Peer, server: Server | None, redis: RedisServer | None, files: Path) -> Storage | None:
    match peer.store:
        case "postgres":
            return None if server is None else Database(server, "bench_" + peer.name.replace("-", "_"))
        case "redis":
            return None if redis is None else redis.database()
        case "sqlite":
            return File(files / peer.name)


def command(peer: Peer, into: Path) -> list[str]:
    """Return the command of the peer's program, without its arguments."""
    start = install.interpreter(ENVIRONMENTS[peer.environment], into)
    if peer.program.endswith(".mjs"):
        return [start, str(PROGRAMS / peer.program)]
    return [start, "-m", "bench.peers.drive", peer.program]


def _side(peer: Peer, storage: Storage, into: Path) -> Side:
    program = command(peer, into)

    def workers(processes: int, _concurrency: int | None, _threads: int | None) -> list[list[str]]:
        # ``BENCH_CONCURRENCY`` says how many jobs run at a time.
        return [[*program, "worker"] for _ in range(processes)]

    def history(count: int) -> None:
        assert isinstance(storage, Database)
        assert peer.history is not None
        storage.do(peer.history.replace("%(count)s", str(count)))

    return Side(
        peer.name,
        storage,
        program,
        workers,
        peer.left,
        ROOT,
        words={
            "BENCH_CONCURRENCY": str(peer.concurrency),
            "BENCH_MODE": peer.mode,
            "BENCH_MODULES": str(into.absolute() / peer.environment),
        },
        jobs=peer.jobs,
        history=None if peer.history is None else history,
        bulk=peer.bulk,
        works=peer.works,
    )
