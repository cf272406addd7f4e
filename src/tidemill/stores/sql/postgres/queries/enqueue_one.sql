-- enqueue_one: inserts one job that is due now and has neither unique key nor details; no row means that its id is already stored.
-- PostgreSQL only: the most frequent call, without the overhead of a batch. After a quiet period it sends its own wake-up, which then
-- reaches the worker with the commit.
-- takes: now timestamptz, id uuid, tenant text, queue text, task text, priority int2, max_attempts int4, timeout interval
-- takes: expires_at timestamptz, args text, channel text, payload text
-- gives: id uuid
insert into tidemill.ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                           expires_at, timeout, until_claimed, detailed, args)
select :id::uuid, :tenant, :queue, :task, :priority, 0, :max_attempts, 0, 0, coalesce(:now::timestamptz, now()),
       coalesce(:now::timestamptz, now()), :expires_at::timestamptz, :timeout::interval, false, false, :args
where not exists (select from tidemill.ready j where j.id = :id::uuid)
  and not exists (select from tidemill.scheduled j where j.id = :id::uuid)
  and not exists (select from tidemill.parked j where j.id = :id::uuid)
  and not exists (select from tidemill.running j where j.id = :id::uuid)
  and not exists (select from tidemill.history j where j.id = :id::uuid)
  and pg_notify(:channel, :payload)::text is not null -- when channel
returning id
