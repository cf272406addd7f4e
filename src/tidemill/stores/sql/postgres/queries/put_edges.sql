-- put_edges: inserts edges; an existing one of the same jobs is replaced.
-- takes: now timestamptz
-- items: job_id uuid, needs_id uuid, condition text, shard int2
insert into tidemill.dependencies(job_id, needs_id, created_at, condition, shard)
select x.job_id, x.needs_id, coalesce(:now::timestamptz, now()), x.condition, x.shard
from unnest(:job_id::uuid[], :needs_id::uuid[], :condition::text[], :shard::smallint[]) as x(job_id, needs_id, condition, shard)
on conflict (job_id, needs_id) do update set condition = excluded.condition, shard = excluded.shard
