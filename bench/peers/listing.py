"""The peers: packages, settings, queries, and what each keeps and guarantees.

A list without logic. The concurrency is the best of a few trial drains. ``left`` counts unfinished jobs by SQL or, on Redis, by a Lua
script. The guarantees are those of the peers' documentation for the settings used here; no worker was killed to verify them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.peers.work import Kind

Store = Literal["postgres", "sqlite", "redis"]


@dataclass(frozen=True)
class Promise:
    """The data a system keeps after a job, and its behaviour on failures."""

    history: str
    result: str
    worker_dies: str
    durable: str  #: failures that an accepted job survives


@dataclass(frozen=True)
class Peer:
    """One peer in one of its modes."""

    name: str
    store: Store
    program: str  #: a module of ``bench.peers.programs``, or with ``.mjs`` a file there
    environment: str  #: the folder that ``install`` makes
    concurrency: int
    left: str
    promise: Promise
    mode: str = ""
    jobs: int | None = None  #: number of jobs to drain, for slow systems
    bulk: bool = True
    history: str | None = (
        None  #: SQL that writes ``%(count)s`` finished jobs, as the peer itself would have left them
    )
    usual: bool = True  #: whether it is measured by default
    works: tuple[Kind, ...] = ()  #: kinds of work that its jobs can do in W9 to W14
    settings: str = ""  #: shown on the page next to the concurrency


@dataclass(frozen=True)
class Environment:
    """The packages of one or more peers; the first package is the peer."""

    name: str
    packages: tuple[str, ...]
    python: str | None = None  #: at least this one, where the oldest that Tidemill runs on is too old

    @property
    def node(self) -> bool:
        return self.name.startswith("node-")


_NODE = "node@22.23.3"
_PSYCOPG = ("psycopg==3.3.8", "psycopg-binary==3.3.8", "psycopg-pool==3.3.3")
ENVIRONMENTS = {
    it.name: it
    for it in (
        Environment("procrastinate", ("procrastinate==3.10.0", *_PSYCOPG)),
        Environment("pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0")),
        Environment("oban", ("oban==0.7.0", *_PSYCOPG, "orjson==3.13.0", "uvloop==0.23.0"), python="3.12"),
        Environment("chancy", ("chancy==0.26.0", *_PSYCOPG)),
        Environment("saq", ("saq==0.26.4", "redis==7.4.1", "hiredis==3.5.0", *_PSYCOPG)),
        Environment("celery", ("celery==5.7.0", "redis==8.1.0", "packaging==26.3")),
        Environment("dramatiq", ("dramatiq==2.2.1", "redis==8.1.0", "hiredis==3.5.0")),
        Environment("rq", ("rq==2.12.0", "redis==8.1.0")),
        Environment("arq", ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0")),
        Environment("taskiq", ("taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "uvloop==0.23.0")),
        Environment("huey", ("huey==3.5.4", "redis==8.1.0")),
        Environment("node-graphile-worker", ("graphile-worker@0.18.0", "pg@8.23.1", _NODE)),
        Environment("node-pg-boss", ("pg-boss@12.35.0", "pg@8.23.1", _NODE)),
        Environment("node-bullmq", ("bullmq@6.7.0", "ioredis@6.0.0", _NODE)),
    )
}

_COMMITTED = "a crash of the server: every enqueue is a flushed commit"
_SNAPSHOT = "a restart of Redis; a crash loses the jobs after the last snapshot (default: up to minutes)"
_FILE = "a power failure: every enqueue is a flushed commit (SQLite's default)"
_GRAPHILE = Promise(
    "no, the row is deleted", "no", "runs again when its lock expires, after 4 hours", _COMMITTED
)
_CELERY_CRASH = "the job is lost (acknowledged before it runs; `acks_late` changes that)"
_SAQ = Promise(
    "for 10 minutes",
    "yes, as long",
    "swept after its timeout; runs again only with `retries` above 1",
    _SNAPSHOT,
)
_TASKIQ_CRASH = "runs again: another worker claims the message after 10 minutes"
_ARGS = """'{"user_id": 1, "email": "a@example.com"}'"""
_THREADS: tuple[Kind, ...] = ("spin", "block")
_ALL: tuple[Kind, ...] = (*_THREADS, "await")
_SERIES = "generate_series(1, %(count)s) n"

PEERS = {
    it.name: it
    for it in (
        Peer(
            "procrastinate",
            "postgres",
            "procrastinate",
            "procrastinate",
            20,
            "select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
            Promise(
                "yes: the job and three events",
                "no",
                "stays `doing`; your code finds and retries it",
                _COMMITTED,
            ),
            jobs=5_000,
            history=f"""insert into procrastinate_jobs(queue_name, task_name, status, args, attempts)
                select 'default', 'send_email', 'succeeded', {_ARGS}, 1 from {_SERIES};
                insert into procrastinate_events(job_id, type, at)
                select id, step::procrastinate_job_event_type, now()
                from procrastinate_jobs, unnest(array['deferred', 'started', 'succeeded']) step""",
            works=_ALL,
            settings="asyncio; a pool of 24 connections",
        ),
        Peer(
            "pgqueuer",
            "postgres",
            "pgqueuer",
            "pgqueuer",
            100,
            "select count(*) from pgqueuer",
            Promise(
                "three log lines; the job is deleted",
                "no",
                "runs again when its heartbeat is 30 s old",
                _COMMITTED,
            ),
            history=f"""insert into pgqueuer_log(created, job_id, status, priority, entrypoint, aggregated)
                select now(), n, step::pgqueuer_status, 0, 'send_email', true
                from {_SERIES}, unnest(array['queued', 'picked', 'successful']) step""",
            works=_ALL,
            settings="asyncpg, uvloop; `batch_size` is the concurrency",
        ),
        Peer(
            "oban",
            "postgres",
            "oban",
            "oban",
            100,
            "select count(*) from oban_jobs where state in ('available', 'executing', 'scheduled', 'retryable')",
            Promise("for a day", "no", "runs again: rescued when it is 5 minutes old", _COMMITTED),
            history=f"""insert into oban_jobs(state, queue, worker, attempt, args, attempted_at, completed_at, attempted_by)
                select 'completed', 'default', 'bench.peers.programs.oban.SendEmail', 1, {_ARGS},
                timezone('UTC', now()), timezone('UTC', now()), array['bench'] from {_SERIES}""",
            settings="uvloop, orjson; Python 3.12",
        ),
        Peer(
            "chancy",
            "postgres",
            "chancy",
            "chancy",
            200,
            "select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')",
            Promise("until pruned", "no", "runs again through its recovery plug-in", _COMMITTED),
            jobs=10_000,
            usual=False,
            settings="coroutines; eager polling",
        ),
        Peer(
            "saq-postgres",
            "postgres",
            "saq",
            "saq",
            20,
            "select count(*) from saq_jobs where status in ('new', 'queued', 'active')",
            Promise(_SAQ.history, _SAQ.result, _SAQ.worker_dies, _COMMITTED),
            mode="postgres",
            jobs=2_000,
            bulk=False,
            usual=False,
        ),
        Peer(
            "graphile-worker",
            "postgres",
            "graphile.mjs",
            "node-graphile-worker",
            10,
            "select count(*) from graphile_worker._private_jobs",
            _GRAPHILE,
            settings="Node 22",
        ),
        Peer(
            "graphile-worker-batch",
            "postgres",
            "graphile.mjs",
            "node-graphile-worker",
            10,
            "select count(*) from graphile_worker._private_jobs",
            _GRAPHILE,
            mode="batch",
            settings="Node 22; local queue of 500, completions written together",
        ),
        Peer(
            "pg-boss",
            "postgres",
            "pgboss.mjs",
            "node-pg-boss",
            500,
            "select count(*) from pgboss.job_common where state < 'completed'",
            Promise(
                "for 7 days",
                "no, only for batches of one",
                "runs again when it expires, after 15 minutes",
                _COMMITTED,
            ),
            history=f"""insert into pgboss.job_common(name, data, state, started_on, completed_on)
                select 'send_email', {_ARGS}, 'completed', now(), now() from {_SERIES}""",
            settings="Node 22; batches of 500 handled one after another, LISTEN/NOTIFY on",
        ),
        Peer(
            "huey-sqlite",
            "sqlite",
            "huey",
            "huey",
            1,
            "select count(*) from task",
            Promise("no", "no (switched off)", "the job is lost (removed before it runs)", _FILE),
            mode="sqlite",
            jobs=2_000,
            bulk=False,
            works=_THREADS,
            settings="one thread",
        ),
        Peer(
            "huey-redis",
            "redis",
            "huey",
            "huey",
            1,
            "return redis.call('llen', 'huey.redis.bench')",
            Promise("no", "no (switched off)", "the job is lost (removed before it runs)", _SNAPSHOT),
            jobs=10_000,
            bulk=False,
            works=_THREADS,
            settings="one thread",
        ),
        Peer(
            "celery-redis",
            "redis",
            "celery",
            "celery",
            1,
            "return redis.call('llen', 'celery') + redis.call('hlen', 'unacked')",
            Promise("no", "no", _CELERY_CRASH, _SNAPSHOT),
            jobs=5_000,
            works=_THREADS,
            settings="one prefork process",
        ),
        Peer(
            "celery-redis+results",
            "redis",
            "celery",
            "celery",
            1,
            "return redis.call('llen', 'celery') + redis.call('hlen', 'unacked')",
            Promise("no", "yes, for a day", _CELERY_CRASH, _SNAPSHOT),
            mode="results",
            jobs=5_000,
            usual=False,
            works=_THREADS,
            settings="one prefork process",
        ),
        Peer(
            "dramatiq-redis",
            "redis",
            "dramatiq",
            "dramatiq",
            32,
            "return redis.call('hlen', 'dramatiq:default.msgs')",
            Promise("no", "no", "runs again when the worker's heartbeat is a minute old", _SNAPSHOT),
            bulk=False,
            works=_THREADS,
            settings="one process, 32 threads",
        ),
        Peer(
            "rq",
            "redis",
            "rq",
            "rq",
            1,
            "return redis.call('llen', 'rq:queue:default') + redis.call('zcard', 'rq:wip:default')",
            Promise(
                "for 500 seconds",
                "yes, as long",
                "moved to failed; runs again only with a retry rule",
                _SNAPSHOT,
            ),
            jobs=2_000,
            works=("spin",),
            settings="SimpleWorker, which does not fork for each job",
        ),
        Peer(
            "arq",
            "redis",
            "arq",
            "arq",
            100,
            "return redis.call('zcard', 'arq:queue')",
            Promise("no", "yes, for an hour", "runs again after its timeout", _SNAPSHOT),
            jobs=5_000,
            bulk=False,
            settings="polls every 0.5 s (default)",
        ),
        Peer(
            "saq-redis",
            "redis",
            "saq",
            "saq",
            20,
            "return redis.call('zcard', 'saq:default:incomplete')",
            _SAQ,
            jobs=5_000,
            bulk=False,
        ),
        Peer(
            "taskiq-redis",
            "redis",
            "taskiq",
            "taskiq",
            100,
            """local all = redis.call('xinfo', 'groups', 'taskiq')
            local left = 0
            for _, group in ipairs(all) do
              for at = 1, #group, 2 do
                if group[at] == 'pending' or group[at] == 'lag' then left = left + (tonumber(group[at + 1]) or 0) end
              end
            end
            return left""",
            Promise("no", "no", _TASKIQ_CRASH, _SNAPSHOT),
            jobs=10_000,
            bulk=False,
            works=_ALL,
            settings="one process; a stream, acknowledged",
        ),
        Peer(
            "bullmq",
            "redis",
            "bullmq.mjs",
            "node-bullmq",
            100,
            "return redis.call('llen', 'bull:bench:wait') + redis.call('llen', 'bull:bench:active')",
            Promise("yes, until removed", "yes", "runs again: stalled jobs are found every 30 s", _SNAPSHOT),
            settings="Node 22",
        ),
    )
}

USUAL = tuple(name for name, peer in PEERS.items() if peer.usual)

OURS: dict[Store, Promise] = {
    "postgres": Promise(
        "yes, for the retention period of the task",
        "yes",
        "runs again when its worker's lease is lost; the old worker can no longer write",
        _COMMITTED,
    ),
    "sqlite": Promise(
        "yes, for the retention period of the task",
        "yes",
        "runs again when its worker's lease is lost; the old worker can no longer write",
        "a power failure: every enqueue is a flushed commit (`synchronous=FULL`)",
    ),
}
