"""Cost model of a fleet: server CPU and connections, from the costs of single operations."""

from __future__ import annotations

from dataclasses import dataclass, field

SINGLES = 0.2
"""Share of jobs that are enqueued one at a time; the others come in batches of 1,000."""

BEAT = 5.0  # seconds between the heartbeats of a supervisor
POLL = 30.0  # seconds between the polls of an idle worker
NOTICES = 240.0  # NOTIFY a second, all processes together, under load
HEARD = 10.0  # wake-ups a second that reach idle workers


@dataclass(frozen=True, slots=True)
class Costs:
    """Server CPU of single operations in microseconds, and memory of a connection in megabytes."""

    step: float = 246.0  #: of a finish with a claim, whatever its number of jobs
    job: float = 14.0  #: of each job in it
    unprepared: float = 850.0  #: more for a step whose statements are planned each time
    single: float = 170.0  #: enqueue of one job
    bulk: float = 8.0  #: enqueue of a job among 1,000
    beat_host: float = 140.0  #: heartbeat of a host
    beat_worker: float = 4.0  #: each worker in it
    poll: float = 300.0  #: a look of an idle worker that finds nothing
    notify: float = 5.0  #: NOTIFY, for each listening connection
    herd: float = 250.0  #: a look after a wake-up that finds nothing
    connection: float = 1.8  #: private memory


@dataclass(frozen=True, slots=True)
class Fleet:
    """Workers of one kind, with their connections to the server."""

    name: str
    workers: int
    hosts: int
    connections: int
    listeners: int
    woken: int  #: idle workers that look after each wake-up
    batch: float = 1.0  #: jobs in one step
    prepared: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """Server CPU of a fleet by purpose, in cores."""

    steps: float
    enqueue: float
    beats: float
    notify: float
    herd: float
    memory: float = field(default=0.0)  #: of its connections, in gigabytes

    @property
    def cores(self) -> float:
        return self.steps + self.enqueue + self.beats + self.notify + self.herd


FLEETS = (
    Fleet("20 × 100 slots, each job its own step", 20, 20, 104, 40, 40),
    Fleet("20 × 100 slots, 50 jobs a step", 20, 20, 104, 40, 40, batch=50),
    Fleet("1,000 × 10 slots, every worker listens", 1_000, 1_000, 5_200, 2_000, 2_000),
    Fleet("1,000 × 10 slots, 10 runners a host", 1_000, 100, 1_200, 100, 16),
    Fleet("10,000 × 1 slot, every worker listens", 10_000, 10_000, 52_000, 20_000, 20_000),
    Fleet("10,000 × 1, pooler and bus, unprepared", 10_000, 10_000, 50, 0, 0, prepared=False),
    Fleet("10,000 × 1, pooler and bus, prepared", 10_000, 10_000, 50, 0, 0),
    Fleet("10,000 × 1 behind 4 hubs, 50 jobs a step", 10_000, 4, 16, 8, 4, batch=50),
)


def load_of(fleet: Fleet, rate: float, costs: Costs) -> Load:
    """Return the load of a fleet that runs this many jobs a second.

    >>> round(load_of(FLEETS[0], 1_000_000 / 60, Costs()).cores, 1)
    5.2
    """
    a_step = costs.step + (0.0 if fleet.prepared else costs.unprepared)
    beats = fleet.hosts / BEAT * costs.beat_host + fleet.workers / BEAT * costs.beat_worker
    polls = fleet.workers / POLL * costs.poll
    million = 1e6
    return Load(
        steps=rate * (a_step / fleet.batch + costs.job) / million,
        enqueue=rate * (costs.single * SINGLES + costs.bulk * (1 - SINGLES)) / million,
        beats=(beats + polls) / million,
        notify=NOTICES * fleet.listeners * costs.notify / million,
        herd=HEARD * fleet.woken * costs.herd / million,
        memory=fleet.connections * costs.connection / 1_000,
    )


def step_cost(costs: Costs, batch: float) -> float:
    """Return the model's cost of a job in a step of this many jobs, in microseconds."""
    return costs.step / batch + costs.job


def fitted(small: float, small_batch: int, large: float, large_batch: int) -> tuple[float, float]:
    """Return the cost of a step and of a job, from the costs of a job at two sizes of a step.

    >>> fitted(260.0, 1, 14.5, 492)
    (246.0, 14.0)
    """
    step = (small - large) / (1 / small_batch - 1 / large_batch)
    return round(step, 1), round(small - step / small_batch, 1)
