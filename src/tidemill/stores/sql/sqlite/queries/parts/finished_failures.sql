-- finished_failures: records the failures among the jobs that a finish ends.
insert into tidemill_failures(at, first_at, tenant, task, fingerprint, variant, cause, message, job_id, jobs)
select :now - cast(round(x.ended_ago * 1000000) as integer), :now - cast(round(x.ended_ago * 1000000) as integer),
       r.tenant, r.task, x.fingerprint, x.variant, x.cause, x.message, r.id, 1
from
-- include: finishing
where x.fingerprint is not null and h.new_state in ('failed', 'timed_out', 'dead_lettered')
;
