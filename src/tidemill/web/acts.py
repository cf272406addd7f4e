"""The act of every route and page, and where its object comes from.

The second word says how the object is known. A path parameter is checked by the guard. ``job`` is checked when the request
loads its job, ``list`` filters its items, and ``later`` is checked by the handler; all three end in ``WebRequest``, which refuses
the response if nothing was checked. Without a second word the act concerns everything, so a grant with patterns does not include it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.domain.permissions import ACTS
from tidemill.domain.roles import Role
from tidemill.errors import BadSettings


class RouteAct(NamedTuple):
    """The act of a route, and the source of its object."""

    act: str
    by: str = ""


PUBLIC = RouteAct("public")
"""The act of a route that needs no role."""

_TEXT = """
GET    /api/access                       access.read
GET    /api/access/acts                  access.read
GET    /api/access/explain               access.read
GET    /api/sessions                     sessions.read
DELETE /api/sessions/{id}                sessions.end
POST   /api/sessions/end                 sessions.end

GET    /api/jobs                         jobs.read          list
POST   /api/jobs                         jobs.run           later
POST   /api/jobs/create                  jobs.run           later
POST   /api/jobs/bulk                    jobs.change
POST   /api/jobs/trigger                 duties.run
GET    /api/jobs/{id}                    jobs.read          job
DELETE /api/jobs/{id}                    jobs.delete        job
GET    /api/jobs/{id}/args               jobs.payload       job
GET    /api/jobs/{id}/value              jobs.payload       job
GET    /api/jobs/{id}/progress           jobs.read          job
GET    /api/jobs/{id}/executions         jobs.read          job
GET    /api/jobs/{id}/steps              jobs.payload       job
GET    /api/jobs/{id}/stages             jobs.read          job
GET    /api/jobs/{id}/streams            jobs.read          job
GET    /api/jobs/{id}/streams/{name}     jobs.arguments     job
GET    /api/jobs/{id}/logs               jobs.logs          job
GET    /api/jobs/{id}/children           jobs.read          job
GET    /api/jobs/{id}/why                jobs.read          job
GET    /api/jobs/{id}/events             jobs.read          job
POST   /api/jobs/{id}/cancel             jobs.cancel        job
POST   /api/jobs/{id}/retry              jobs.retry         job
POST   /api/jobs/{id}/run-now            jobs.retry         job
POST   /api/jobs/{id}/reschedule         jobs.change        job
PATCH  /api/jobs/{id}                    jobs.change        job
POST   /api/jobs/{id}/rerun              jobs.retry         job
POST   /api/jobs/{id}/approve            jobs.review        job
POST   /api/jobs/{id}/reject             jobs.review        job
POST   /api/jobs/{id}/signal             jobs.signal        job
POST   /api/jobs/{id}/signals            jobs.signal        job
GET    /api/jobs/{id}/signals            jobs.read          job
POST   /api/jobs/{id}/answer             jobs.review        job
GET    /api/events                       live.read
POST   /api/events                       events.emit
GET    /api/events/emitted               events.read
GET    /api/events/jobs                  events.read
GET    /api/questions                    questions.read
GET    /api/flows                        flows.read
POST   /api/flows                        flows.run
GET    /api/flows/{id}                   flows.read
GET    /api/flows/{id}/graph             flows.read
GET    /api/flows/{id}/nodes             flows.read
GET    /api/flows/{id}/timeline          flows.read
GET    /api/flows/{id}/why               flows.read
POST   /api/flows/{id}/nodes/{node:path}/signals jobs.signal
POST   /api/flows/{id}/retry             flows.change
POST   /api/flows/{id}/skip              flows.change
POST   /api/flows/{id}/cancel            flows.change
GET    /api/batches                      flows.read
POST   /api/batches                      flows.run
GET    /api/batches/{id}                 flows.read
GET    /api/batches/{id}/jobs            flows.read
GET    /api/batches/{id}/timeline        flows.read
POST   /api/batches/{id}/cancel          flows.change
POST   /api/batches/{id}/retry           flows.change
GET    /api/tasks                        tasks.read         list
GET    /api/tasks/{name}                 tasks.read         task
PATCH  /api/tasks/{name}                 tasks.change       task
POST   /api/tasks/{name}/pause           tasks.pause        task
POST   /api/tasks/{name}/resume          tasks.pause        task
GET    /api/definitions                  definitions.read   list
POST   /api/definitions                  definitions.change
GET    /api/definitions/{key}            definitions.read   definition
GET    /api/definitions/{key}/parameters definitions.read   definition
PUT    /api/definitions/{key}            definitions.change
PATCH  /api/definitions/{key}            definitions.change definition
DELETE /api/definitions/{key}            definitions.delete definition
POST   /api/definitions/{key}/trigger    definitions.run    definition
GET    /api/schedules                    schedules.read     list
POST   /api/schedules                    schedules.change
GET    /api/schedules/{id}               schedules.read     later
PUT    /api/schedules/{id}               schedules.change   later
DELETE /api/schedules/{id}               schedules.delete   later
POST   /api/schedules/{id}/pause         schedules.pause    later
POST   /api/schedules/{id}/resume        schedules.pause    later
POST   /api/schedules/{id}/trigger       schedules.run      later
GET    /api/schedules/{id}/preview       schedules.read     later
GET    /api/schedules/{id}/why           schedules.read     later
POST   /api/schedules/{id}/backfill      schedules.run      later
GET    /api/queues                       queues.read        list
POST   /api/queues/{name}/pause          queues.pause       queue
POST   /api/queues/{name}/resume         queues.pause       queue
GET    /api/pauses                       pauses.read
POST   /api/pauses                       pauses.change
DELETE /api/pauses                       pauses.change
GET    /api/errors                       stats.read
GET    /api/errors/{fingerprint}         stats.read
GET    /api/errors/{fingerprint}/parts   stats.read
POST   /api/errors/{fingerprint}/mute    errors.change
POST   /api/errors/{fingerprint}/unmute  errors.change
POST   /api/errors/{fingerprint}/resolve errors.change
POST   /api/errors/{fingerprint}/unresolve errors.change
POST   /api/errors/{fingerprint}/retry   errors.retry
GET    /api/limits                       limits.read
PUT    /api/limits                       limits.change
DELETE /api/limits                       limits.change
POST   /api/limits/reset-breaker         limits.reset
GET    /api/tenants                      metrics.read
PATCH  /api/tenants/{name}               tenants.change
DELETE /api/tenants/{name}               tenants.change
GET    /api/workers                      workers.read
POST   /api/workers/{id}/drain           workers.drain
POST   /api/workers/{id}/pause           workers.pause
POST   /api/workers/{id}/resume          workers.pause
POST   /api/workers/{id}/scale           workers.scale
GET    /api/stores                       workers.read
GET    /api/shards                       workers.read
GET    /api/placements                   workers.read
PUT    /api/placements/{name}            tenants.change
GET    /api/leases                       workers.read
POST   /api/leases/{name}/release        workers.drain
GET    /api/worker/config                config.read
PUT    /api/worker/config                config.change
POST   /api/worker/tick                  duties.run
GET    /api/archive                      archive.status
GET    /api/archive/jobs                 archive.read
GET    /api/archive/explain/{id}         archive.read
POST   /api/archive/run                  archive.purge
POST   /api/archive/restore              archive.restore
POST   /api/archive/erase                archive.erase
GET    /api/logs                         logs.read
GET    /api/audit                        audit.read
GET    /api/keys                         keys.read
POST   /api/keys                         keys.change
DELETE /api/keys/{id}                    keys.change
GET    /api/stats                        stats.read
GET    /api/stats/queue_depth            stats.read
GET    /api/stats/depth_history          metrics.read
GET    /api/stats/active_workers         metrics.read
GET    /api/stats/orphans                stats.read
GET    /api/stats/overdue                stats.read
GET    /api/stats/stuck                  stats.read
GET    /api/stats/lag                    stats.read
GET    /api/stats/failures               stats.read
GET    /api/stats/worker_performance     stats.read
GET    /api/stats/retries                stats.read
GET    /api/stats/by_status              stats.read
GET    /api/stats/durations              stats.read
GET    /api/stats/tenants                stats.read
GET    /api/stats/throughput             stats.read
GET    /api/stats/errors                 stats.read
GET    /api/stats/dead_letters           stats.read
GET    /api/stats/leaders                metrics.read
GET    /api/stats/archival               archive.status
GET    /api/stats/health                 stats.read
GET    /api/alerts                       metrics.read
GET    /api/alerts/history               metrics.read
POST   /api/alerts/{id}/acknowledge      alerts.acknowledge
GET    /api/notifications                notifications.read
POST   /api/notifications                notifications.send
GET    /api/channels                     notifications.read
GET    /api/subscriptions                metrics.read
DELETE /api/subscriptions/{name}         subscriptions.remove
GET    /metrics                          metrics.read

GET    /                                 stats.read
GET    /live                             live.read
GET    /alerts                           metrics.read
POST   /alerts/{id}/acknowledge          alerts.acknowledge
GET    /flows                            flows.read
GET    /flows/{id}                       flows.read
POST   /flows/{id}/retry                 flows.change
POST   /flows/{id}/cancel                flows.change
POST   /flows/{id}/skip                  flows.change
GET    /batches                          flows.read
GET    /workers                          workers.read
GET    /workers/{id}                     workers.read
GET    /workers/{id}/drain               workers.drain
POST   /workers/{id}/drain               workers.drain
GET    /workers/{id}/pause               workers.pause
POST   /workers/{id}/pause               workers.pause
POST   /workers/{id}/resume              workers.pause
GET    /workers/{id}/scale               workers.scale
POST   /workers/{id}/scale               workers.scale
GET    /leases/release                   workers.drain
POST   /leases/release                   workers.drain
GET    /tenants                          tenants.read
GET    /tenants/pause                    pauses.change
POST   /tenants/pause                    pauses.change
POST   /tenants/resume                   pauses.change
POST   /tenants/weight                   tenants.change
GET    /logs                             logs.read
GET    /audit                            audit.read
GET    /audit/verify                     audit.verify
GET    /settings                         installation.read
POST   /settings/set                     config.change
GET    /notifications                    notifications.read
POST   /notifications/test               notifications.send
GET    /archive                          archive.status
POST   /archive/run                      archive.purge
GET    /settings/unset                   config.change
POST   /settings/unset                   config.change
GET    /settings/keys                    keys.read
POST   /settings/keys                    keys.change
GET    /settings/keys/revoke             keys.change
POST   /settings/keys/revoke             keys.change
GET    /settings/sessions                sessions.read
POST   /settings/sessions/end            sessions.end
GET    /schedules/new                    schedules.change
GET    /schedules/preview                schedules.change
POST   /schedules/new                    schedules.change
GET    /schedules/{id}/edit              schedules.change   later
POST   /schedules/{id}/edit              schedules.change   later
GET    /schedules                        schedules.read
GET    /schedules/{id}                   schedules.read     later
POST   /schedules/{id}/pause             schedules.pause    later
POST   /schedules/{id}/resume            schedules.pause    later
GET    /schedules/{id}/run               schedules.run      later
POST   /schedules/{id}/run               schedules.run      later
GET    /schedules/{id}/backfill          schedules.run      later
POST   /schedules/{id}/backfill          schedules.run      later
GET    /schedules/{id}/remove            schedules.delete   later
POST   /schedules/{id}/remove            schedules.delete   later
POST   /tasks/-/pause                    tasks.pause
POST   /tasks/-/resume                   tasks.pause
GET    /tasks/-/settings/{name:path}     tasks.configure    task
POST   /tasks/-/settings/{name:path}     tasks.configure    task
GET    /tasks                            tasks.read
GET    /tasks/{name:path}                tasks.read         task
POST   /tasks/{name:path}                jobs.run           later
POST   /queues/-/pause                   queues.pause
POST   /queues/-/resume                  queues.pause
GET    /queues/-/pause-all               pauses.all
POST   /queues/-/pause-all               pauses.all
POST   /queues/-/resume-all              pauses.all
POST   /queues/-/enable-workers          workers.enable
GET    /queues/-/limit                   limits.change
GET    /queues/-/limit/{name:path}       limits.change
POST   /queues/-/limit                   limits.change
POST   /queues/-/limit/{name:path}       limits.change
POST   /queues/-/unset-limit             limits.change
POST   /queues/-/reset-breaker           limits.reset
GET    /queues                           queues.read
GET    /queues/{name:path}               queues.read        queue
GET    /jobs                             jobs.read          list
GET    /jobs/bulk                        jobs.change
POST   /jobs/bulk                        jobs.change
POST   /jobs/undo                        jobs.change
GET    /go                               live.read
GET    /jobs/{id}/again                  jobs.run           job
POST   /jobs/{id}/again                  jobs.run           job
POST   /jobs/{id}/retry                  jobs.retry         job
POST   /jobs/{id}/run-now                jobs.retry         job
POST   /jobs/{id}/reschedule             jobs.change        job
POST   /jobs/{id}/change                 jobs.change        job
POST   /jobs/{id}/rerun                  jobs.retry         job
POST   /jobs/{id}/answer                 jobs.review        job
POST   /jobs/{id}/cancel                 jobs.cancel        job
POST   /jobs/{id}/approve                jobs.review        job
POST   /jobs/{id}/reject                 jobs.review        job
GET    /jobs/{id}/delete                 jobs.delete        job
POST   /jobs/{id}/delete                 jobs.delete        job
POST   /jobs/{id}/restore                jobs.restore       job
GET    /jobs/{id}/erase                  jobs.erase         job
POST   /jobs/{id}/erase                  jobs.erase         job
GET    /jobs/{id}/args                   jobs.payload       job
GET    /jobs/{id}/value                  jobs.payload       job
GET    /jobs/{id}                        jobs.read          job
GET    /errors                           stats.read
GET    /errors/{fingerprint}             stats.read
POST   /errors/{fingerprint}/retry       errors.retry
POST   /errors/{fingerprint}/mark        errors.change
"""

ROUTES: dict[str, RouteAct] = {
    " ".join(words[:2]): RouteAct(*words[2:]) for line in _TEXT.splitlines() if (words := line.split())
}


def act_of(method: str, path: str, role: Role, *, everywhere: bool) -> RouteAct:
    """Return the act of a route. A route that is not in the table, or that declares another role, is refused."""
    route = ROUTES.get(f"{method} {path}")
    if route is None:
        raise BadSettings(f"{method} {path} has no act; add it to the table in tidemill.web.acts")
    rule = ACTS.get(route.act)
    if rule is None:
        raise BadSettings(
            f"{method} {path}: there is no act {route.act!r}; add it to ACTS in domain/permissions.py"
        )
    if (rule.role, rule.everywhere) != (role, everywhere):
        raise BadSettings(
            f"{method} {path} declares the role {role.value} (everywhere={everywhere}), but its act {route.act} needs "
            f"{rule.role.value} (everywhere={rule.everywhere}); make them equal"
        )
    return route
