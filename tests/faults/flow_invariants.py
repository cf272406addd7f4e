"""Invariants F1 to F15 of the flows in a chaos run, checked on the store and on the records of the handlers."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from tests.faults.cluster import Cluster
from tests.faults.flow_load import FlowLoad
from tests.faults.flow_tasks import PREFIX, Effect, effects
from tests.faults.invariants import Finding

from tidemill.archive.flows import flow_parts
from tidemill.client.flows.run import FlowRun
from tidemill.domain.archived_flows import FlowParts, read_flow_parts
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.flow_states import SKIPPED, node_label
from tidemill.domain.graph import (
    Edge,
    EdgeCondition,
    FlowFilter,
    FlowRow,
    FlowState,
    GroupKind,
    end_of_group,
    meets,
    outcome_of,
)
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import Store
from tidemill.tasks.ambient import tenant_scope

_BAD = frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.DEAD_LETTERED})
_REPAIRED = "joins whose counts were wrong"
"""Part of the log line of the duty that repairs joins."""


@dataclass
class FlowEvidence:
    """The flows and their jobs after the run, live and archived, and what the handlers recorded."""

    store: Store
    load: FlowLoad
    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    flows: dict[UUID, FlowRow] = field(default_factory=dict)  #: with the groups inside them
    parts: dict[UUID, FlowParts] = field(default_factory=dict)  #: of flows and batches
    begun: dict[UUID, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[UUID, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[UUID, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    logs: str = ""
    repaired: int = 0

    def of(self, name: str) -> Iterator[tuple[FlowRow, list[JobRow]]]:
        """Yield the flows with this name and their jobs."""
        for id, parts in self.parts.items():
            if self.flows[id].name == name:
                yield self.flows[id], [self.jobs[job] for job in parts.jobs if job in self.jobs]

    def named(self, task: str) -> list[JobRow]:
        """Return the jobs of a task."""
        return [job for job in self.jobs.values() if job.task == f"{PREFIX}{task}"]


def gather_flows(cluster: Cluster, load: FlowLoad) -> FlowEvidence:
    """Read everything that belongs to flows and durable functions."""
    app, store = cluster.chaos_app.app, cluster.chaos_app.app.store
    evidence = FlowEvidence(store, load, logs=cluster.logs)
    after: str | None = None
    while True:
        page = store.jobs(JobFilter(ALL_TENANTS), sort=Sort.OLDEST, limit=1000, after=after)
        evidence.jobs |= {job.id: job for job in page.items if job.task.startswith(PREFIX)}
        evidence.jobs |= {job.id: job for job in page.items if job.details.flow_id is not None}
        if (after := page.next) is None:
            break
    last: UUID | None = None
    while page_of := store.flows(FlowFilter(ALL_TENANTS), limit=500, after=last):
        evidence.flows |= {row.id: row for row in page_of}
        last = page_of[-1].id
    for row in list(evidence.flows.values()):
        if row.kind is not GroupKind.MAP:
            evidence.parts[row.id] = flow_parts(store, row)
    for document in store.search_archived_flows(FlowFilter(ALL_TENANTS), limit=1000):
        with tenant_scope(document.tenant):
            run: FlowRun = app.flows.get(document.id)
        evidence.flows[document.id] = run.row
        whole = store.archived_flows([document.id], tenant=ALL_TENANTS)[0]
        evidence.parts[document.id] = read_flow_parts(whole)
        evidence.jobs |= {node.id: node.job.row for node in run.nodes()}
    for effect in effects(cluster.folder):
        kinds = {"B": evidence.begun, "E": evidence.ends, "S": evidence.steps}
        kinds[effect.kind][effect.job].append(effect)
    evidence.repaired = _recounted(store)
    return evidence


def _recounted(store: Store) -> int:
    repaired, after = 0, None
    while True:
        page = store.recount_joins(after=after)
        repaired += len(page.repaired)
        if (after := page.after) is None:
            return repaired


# The checks --------------------------------------------------------------------------------------------------------------


def begins_when_met(evidence: FlowEvidence) -> Finding:
    """F1: no node begins before enough of its needs have ended as wanted."""
    checked, broken = 0, []
    for job, edges, required in _nodes(evidence):
        if not evidence.begun[job.id]:
            continue
        began = min(effect.at for effect in evidence.begun[job.id])
        done = 0
        for edge in edges:
            ends = evidence.ends[edge.needs_id]
            if edge.condition is EdgeCondition.SUCCESS and edge.needs_id in evidence.jobs:
                done += any(effect.at <= began for effect in ends)
            else:
                done += 1  # groups and other conditions leave no record of their own
        checked += 1
        if done < required:
            broken.append(f"node {_name(job)} {job.id} began after {done} of {required} needs")
    return Finding(checked, broken)


def every_node_is_decided(evidence: FlowEvidence) -> Finding:
    """F2: when its needs have ended, a node has run or is skipped, as the oracle says."""
    checked, broken = 0, []
    noted = evidence.store.unreachable(10)
    broken += [f"job {row.job_id} is still noted as unreachable" for row in noted]
    for job, edges, required in _nodes(evidence):
        met = sum(_is_met(evidence, edge) for edge in edges)
        checked += 1
        if job.state not in ENDED:
            broken.append(f"node {_name(job)} {job.id} has not ended: {job.state}")
        elif (node_label(job) == SKIPPED) is (met >= required) and job.state is not JobState.DEAD_LETTERED:
            broken.append(f"node {_name(job)} {job.id} is {node_label(job)}, {met} of {required} needs count")
    return Finding(checked, broken)


def members_are_counted(evidence: FlowEvidence) -> Finding:
    """F3: the join of a group counts exactly its members."""
    checked, broken = 0, []
    for id, parts in evidence.parts.items():
        for count in parts.counts:
            members = [job for job in parts.jobs if evidence.jobs[job].details.group_id == count.id]
            inner = [group for group in parts.groups if group.group_id == count.id]
            checked += 1
            if (count.total, count.remaining) != (len(members) + len(inner), 0):
                broken.append(
                    f"group {count.id} of flow {id} counts {count[1:]}, and has {len(members)} jobs and {len(inner)} groups"
                )
    return Finding(checked, broken)


def flows_end_right(evidence: FlowEvidence) -> Finding:
    """F4: a flow has ended, once per round, in the state that its members give."""
    checked, broken = 0, []
    for id, parts in evidence.parts.items():
        flow = evidence.flows[id]
        checked += 1
        bad = sum(
            evidence.jobs[job].state in _BAD and not evidence.jobs[job].details.may_fail
            for job in parts.jobs
            if evidence.jobs[job].details.group_id == id
        ) + sum(group.state is FlowState.FAILED for group in parts.groups if group.group_id == id)
        wanted = end_of_group(cancelled=flow.cancel_reason is not None, bad=bad)
        if (flow.state, flow.round) != (wanted, 1):
            broken.append(f"flow {flow.name} {id} is {flow.state} in round {flow.round}, and not {wanted}")
    return Finding(checked, broken)


def results_are_handed_over(evidence: FlowEvidence) -> Finding:
    """F5: a node gets the results of the last ends of its needs."""
    checked, broken = 0, []
    wanted: list[tuple[JobRow, int]] = []
    for _, jobs in evidence.of("f.diamonds"):
        wanted += [(job, 5) for job in jobs if job.details.node == "sum"]
    for flow, jobs in evidence.of("f.maps"):
        count = int((flow.key or "").split(":")[0])
        parts = [job for job in jobs if job.details.node == "parts" and job.details.position is not None]
        lost = sum((job.details.position or 0) for job in parts if job.state is not JobState.COMPLETED)
        wanted += [(job, sum(range(count)) - lost) for job in jobs if job.details.node == "sum"]
    for job, value in wanted:
        if job.state is JobState.COMPLETED:
            checked += 1
            if job.result != str(value):
                broken.append(f"job {job.id} got parts with the sum {job.result}, and not {value}")
    return Finding(checked, broken)


def steps_stay_recorded(evidence: FlowEvidence) -> Finding:
    """F6: no step is executed after its record."""
    checked, broken = 0, []
    for job in evidence.named("durable"):
        if job.state is not JobState.COMPLETED or job.result is None:
            continue
        values = json.loads(job.result)
        for step in ("first", "last"):
            tokens = [effect.token for effect in evidence.steps[job.id] if effect.name == step]
            checked += 1
            if not tokens or max(tokens) != values[step]:
                broken.append(
                    f"job {job.id}: step {step} ran in {tokens}, and was recorded by {values[step]}"
                )
    return Finding(checked, broken)


def signals_are_taken_once(evidence: FlowEvidence) -> Finding:
    """F7: an accepted signal is in the mailbox, or was taken by exactly one wait."""
    checked, broken = 0, []
    for id, payloads in evidence.load.sent.items():
        job = evidence.jobs.get(id)
        if job is None or job.state is not JobState.COMPLETED or job.result is None:
            continue
        result = json.loads(job.result)
        taken = result["message"] if isinstance(result, dict) else result
        checked += 1
        if taken not in payloads.values():
            broken.append(f"job {id} took {taken}, and the signals were {payloads}")
        if job.archived_at is None:
            left = [
                json.loads(row.payload or "null") for row in evidence.store.signals(id, tenant=job.tenant)
            ]
            if Counter([taken, *left]) - Counter(payloads.values()):
                broken.append(f"job {id} took {taken} and still has {left} of {payloads}")
    return Finding(checked, broken)


def children_exist_once(evidence: FlowEvidence) -> Finding:
    """F8: the children of a step exist all or none, once."""
    checked, broken = 0, []
    children = Counter(job.details.parent_id for job in evidence.named("child"))
    for job in evidence.named("durable"):
        checked += 1
        wanted = (3,) if job.state is JobState.COMPLETED else (0, 3)
        if children[job.id] not in wanted:
            broken.append(f"job {job.id} is {job.state} and has {children[job.id]} children")
    return Finding(checked, broken)


def growth_follows_the_finish(evidence: FlowEvidence) -> Finding:
    """F9: the nodes that a job adds exist if and only if it completed."""
    checked, broken = 0, []
    for flow, jobs in evidence.of("f.growing"):
        count = int((flow.key or "").split(":")[0])
        planned = next(job for job in jobs if job.details.node == "plan")
        wanted = count if planned.state is JobState.COMPLETED else 0
        checked += 1
        if len(jobs) != wanted + 2:
            broken.append(f"flow {flow.id}: plan is {planned.state} and there are {len(jobs)} nodes")
    return Finding(checked, broken)


def compensations_follow_failures(evidence: FlowEvidence) -> Finding:
    """F10: a compensation runs if and only if its job ended badly, the last step first."""
    checked, broken = 0, []
    for job in evidence.named("saga"):
        edges = [edge for edge in evidence.store.edges_of([job.id]) if edge.needs_id == job.id]
        ids = {edge.job_id for edge in edges}
        ids |= {other for id in ids for other in _before(evidence.store, id)}
        undone = sorted((evidence.jobs[id] for id in ids if id in evidence.jobs), key=lambda row: row.id.int)
        undone = [row for row in undone if row.task == "f.revert"]
        checked += len(undone)
        ran = [row for row in undone if node_label(row) != SKIPPED]
        if job.state is JobState.COMPLETED and ran:
            broken.append(f"saga {job.id} completed, and {len(ran)} compensations ran")
        if job.state is not JobState.COMPLETED and len(ran) != len(undone):
            broken.append(f"saga {job.id} is {job.state}, and {len(ran)} of {len(undone)} compensations ran")
        starts = [
            min(effect.at for effect in evidence.begun[row.id]) for row in ran if evidence.begun[row.id]
        ]
        if len(starts) == 2 and starts[0] < starts[1]:
            broken.append(f"saga {job.id}: the compensation of the first step began first")
    return Finding(checked, broken)


def _before(store: Store, id: UUID) -> list[UUID]:
    return [edge.needs_id for edge in store.edges_of([id]) if edge.job_id == id]


def callbacks_run_once(evidence: FlowEvidence) -> Finding:
    """F11: the callback of a batch is released once, after all members."""
    checked, broken = 0, []
    for batch, jobs in evidence.of("f.batches"):
        callbacks = [job for job in jobs if job.details.group_id is None]
        members = [job for job in jobs if job.details.group_id == batch.id]
        checked += 1
        if len(callbacks) != 1 or node_label(callbacks[0]) == SKIPPED:
            broken.append(f"batch {batch.id} has the callbacks {[node_label(job) for job in callbacks]}")
            continue
        ends = [effect.at for job in members for effect in evidence.ends[job.id][:1]]
        begun = [effect.at for effect in evidence.begun[callbacks[0].id]]
        if begun and ends and min(begun) < max(ends):
            broken.append(f"the callback of batch {batch.id} began before its last member ended")
    return Finding(checked, broken)


def nothing_left_a_live_flow(evidence: FlowEvidence) -> Finding:
    """F12: nothing of a live flow was deleted or archived."""
    broken = [*evidence.load.escaped]
    for flow, jobs in evidence.of("f.gates"):
        if len(jobs) != 3:
            broken.append(f"flow {flow.id} has {len(jobs)} of 3 nodes")
    return Finding(evidence.load.refused, broken)


def tenants_stay_apart(evidence: FlowEvidence) -> Finding:
    """F13: no edge and no group crosses tenants."""
    checked, broken = 0, []
    owners = {id: job.tenant for id, job in evidence.jobs.items()}
    owners |= {id: flow.tenant for id, flow in evidence.flows.items()}
    for id, parts in evidence.parts.items():
        pairs = [(edge.job_id, edge.needs_id) for edge in parts.edges] + [(job, id) for job in parts.jobs]
        for one, other in pairs:
            checked += 1
            if one in owners and other in owners and owners[one] != owners[other]:
                broken.append(f"{one} of {owners[one]} is connected with {other} of {owners[other]}")
    return Finding(checked, broken)


def nothing_was_repaired(evidence: FlowEvidence) -> Finding:
    """F14: the duty that repairs joins found nothing to repair."""
    lines = [line for line in evidence.logs.splitlines() if _REPAIRED in line]
    broken = [line[-200:] for line in lines]
    if evidence.repaired:
        broken.append(f"{evidence.repaired} joins were wrong at the end")
    return Finding(sum(len(parts.counts) for parts in evidence.parts.values()), broken)


def waits_are_explained(evidence: FlowEvidence) -> Finding:
    """F15: every waiting job has a reason."""
    return Finding(evidence.load.explained, evidence.load.unexplained)


def _nodes(evidence: FlowEvidence) -> Iterator[tuple[JobRow, list[Edge], int]]:
    """Yield the nodes of flows that need others: the job, its edges, and how many of them must count."""
    for parts in evidence.parts.values():
        edges: dict[UUID, list[Edge]] = defaultdict(list)
        for edge in parts.edges:
            if edge.shard >= 0:
                edges[edge.job_id].append(edge)
        for id, own in edges.items():
            job = evidence.jobs.get(id)
            if job is None or job.task in ("f.gate", "f.durable", "f.saga"):
                continue  # their edges belong to the last wait of a durable function
            if not job.task.startswith(PREFIX):
                continue
            required = (
                2 if job.details.node == "end" and len(own) == 3 and _is_choice(evidence, job) else len(own)
            )
            yield job, own, required


def _is_choice(evidence: FlowEvidence, job: JobRow) -> bool:
    flow = job.details.flow_id
    return flow is not None and evidence.flows[flow].name == "f.choices"


def _is_met(evidence: FlowEvidence, edge: Edge) -> bool:
    if edge.condition is EdgeCondition.FIRST_FAILURE:
        return False
    state: JobState | FlowState | None = None
    if edge.needs_id in evidence.jobs:
        state = evidence.jobs[edge.needs_id].state
    elif edge.needs_id in evidence.flows:
        state = evidence.flows[edge.needs_id].state
    else:
        state = next(
            (
                group.state
                for parts in evidence.parts.values()
                for group in parts.groups
                if group.id == edge.needs_id
            ),
            None,
        )
    return state is not None and meets(edge.condition, outcome_of(state))


def _name(job: JobRow) -> str:
    return job.details.node or job.task


FLOW_INVARIANTS: dict[str, tuple[str, Callable[[FlowEvidence], Finding]]] = {
    "F1": ("a node begins only when its needs have ended", begins_when_met),
    "F2": ("a node whose needs have ended has run or is skipped", every_node_is_decided),
    "F3": ("a group counts exactly its members", members_are_counted),
    "F4": ("a flow ends with its nodes, in the right state", flows_end_right),
    "F5": ("a node gets the results of its needs", results_are_handed_over),
    "F6": ("no step is executed after its record", steps_stay_recorded),
    "F7": ("a signal is taken once, or is in the mailbox", signals_are_taken_once),
    "F8": ("children of a step exist all or none, once", children_exist_once),
    "F9": ("growth exists if and only if its job completed", growth_follows_the_finish),
    "F10": ("compensations run if and only if their job ended badly", compensations_follow_failures),
    "F11": ("a callback is released once, after the batch", callbacks_run_once),
    "F12": ("nothing of a live flow leaves the live tables", nothing_left_a_live_flow),
    "F13": ("no edge and no group crosses tenants", tenants_stay_apart),
    "F14": ("no join had to be repaired", nothing_was_repaired),
    "F15": ("every waiting job has a reason", waits_are_explained),
}
"""Every invariant of flows: its statement and its check."""


def judge_flows(evidence: FlowEvidence) -> dict[str, Finding]:
    """Return every finding by invariant."""
    return {name: look(evidence) for name, (_, look) in FLOW_INVARIANTS.items()}
