"""The peers as sides of the comparison: those that are installed and whose store is here; who is left out is said with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.engine_ground import Database, File, Ground, Server
from bench.engine_sides import ROOT, Failed, Side
from bench.peers import install
from bench.peers.listing import ENVIRONMENTS, PEERS, Peer
from bench.peers.redis import RedisServer

PROGRAMS = Path(__file__).resolve().parent / "programs"


def peers(
    names: Sequence[str], into: Path, server: Server | None, redis: RedisServer | None, files: Path
) -> tuple[list[Side], list[str]]:
    """The sides, and a sentence for each that was named and is left out."""
    found, left_out = [], []
    for name in names:
        if name not in PEERS:
            raise Failed(f"there is no peer {name!r}; there are {', '.join(PEERS)}")
        peer = PEERS[name]
        if not install.ready(ENVIRONMENTS[peer.environment], into):
            left_out.append(
                f"{name}: it is not installed; python -m bench.peers.install {name} --into FOLDER"
            )
        elif (ground := _ground(peer, server, redis, files)) is None:
            left_out.append(f"{name}: there is no {peer.store} here for it")
        else:
            found.append(_side(peer, ground, into))
    return found, left_out


def _ground(peer: Peer, server: Server | None, redis: RedisServer | None, files: Path) -> Ground | None:
    match peer.store:
        case "postgres":
            return None if server is None else Database(server, "bench_" + peer.name.replace("-", "_"))
        case "redis":
            return None if redis is None else redis.database()
        case "sqlite":
            return File(files / peer.name)


def command(peer: Peer, into: Path) -> list[str]:
    """What starts the peer's program; a command of its own follows."""
    start = install.interpreter(ENVIRONMENTS[peer.environment], into)
    if peer.program.endswith(".mjs"):
        return [start, str(PROGRAMS / peer.program)]
    return [start, "-m", "bench.peers.drive", peer.program]


def _side(peer: Peer, ground: Ground, into: Path) -> Side:
    program = command(peer, into)

    def workers(processes: int, concurrency: int | None) -> list[list[str]]:  # noqa: ARG001  (chosen in the listing)
        return [[*program, "worker"] for _ in range(processes)]

    def history(count: int) -> None:
        assert isinstance(ground, Database)
        assert peer.history is not None
        ground.do(peer.history.replace("%(count)s", str(count)))

    return Side(
        peer.name,
        ground,
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
    )
