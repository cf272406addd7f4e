-- put_edges: inserts edges; an existing one of the same jobs is replaced.
-- takes: now timestamptz
-- items: job_id uuid, needs_id uuid, condition text, shard int2
insert into tidemill_dependencies(job_id, needs_id, created_at, condition, shard)
values (:job_id, :needs_id, :now, :condition, :shard)
on conflict (job_id, needs_id) do update set condition = excluded.condition, shard = excluded.shard
