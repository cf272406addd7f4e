-- count_result: the released jobs with their queues, the closed groups with their states, and the jobs that can no longer start.
-- gives: kind text, id uuid, detail text
select 'released'::text as kind, id, queue::text as detail from freed
union all select 'closed', id, state from closed
union all select 'unreachable', job_id, null from unreachable
