-- finish_jobs: the batch `item`, its held jobs `gone`, and the tables they move to.
-- takes: now timestamptz
-- items: id uuid, token int8, worker uuid, to_state text, execution text, reason text, delay interval, refund bool, crashed bool
-- items: result text, error text, started_ago float8, ended_ago float8, on_cancel text, keep text
-- items: fingerprint text, variant text, cause text, message text
with item as materialized (
  select * from unnest(:id::uuid[], :token::bigint[], :worker::uuid[], :to_state::text[], :execution::text[], :reason::text[],
                       :delay::interval[], :refund::boolean[], :crashed::boolean[], :result::text[], :error::text[],
                       :started_ago::float8[], :ended_ago::float8[], :on_cancel::text[]
                       , :keep::text[] -- when light
                       , :fingerprint::text[], :variant::text[], :cause::text[], :message::text[] -- when failing
                       ) with ordinality
    as x(id, token, worker, to_state, execution, why, delay, refund, crashed, result, error, started_ago, ended_ago, on_cancel
         , keep -- when light
         , fingerprint, variant, cause, message -- when failing
         , n)
  order by id),
gone as (
  -- include: fenced
    and not r.tied -- when plain
  returning r.*, x.to_state, x.execution, x.why, x.delay, x.refund, x.crashed, x.result, x.error, x.n,
            x.keep, -- when light
            x.fingerprint, x.variant, x.cause, x.message, -- when failing
            coalesce(coalesce(:now::timestamptz, now()) - make_interval(secs => x.started_ago), r.started_at) as began_at,
            coalesce(:now::timestamptz, now()) - make_interval(secs => x.ended_ago) as finished_at,
            case when r.cancel_reason is null then x.to_state else coalesce(x.on_cancel, x.to_state) end as new_state,
            case when r.cancel_reason is null then x.to_state else coalesce(x.on_cancel, x.to_state) end
              in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered') as ends),
ended as (
  insert into tidemill.history(
    -- include: ended_columns
    )
  select
    -- include: job_columns
    , attempt, crashes + crashed::int, token, run_at, unique_key,
    case when new_state <> to_state then cancel_reason else why end, new_state, execution, worker, claimed_at, began_at, finished_at, cancel_reason,
    progress, result, error
  from gone where ends
    and (keep <> 'nothing' or tied) -- when light
  returning tenant, task, queue, worker, state, execution, attempt, run_at, started_at, finished_at),
-- include: record_failures(jobs=gone where fingerprint is not null and new_state in ('failed', 'timed_out', 'dead_lettered'); at=finished_at) -- when failing
ending as (
  select * from ended
  union all -- when light
  select tenant, task, queue, worker, new_state, execution, attempt, run_at, began_at, finished_at -- when light
  from gone where ends and keep = 'nothing' and not tied -- when light
  union all -- when releases
  select tenant, task, queue, worker, null, execution, attempt, run_at, began_at, finished_at from gone where not ends -- when releases
  ),
-- include: journal_ends
noted as ( -- when releases
  insert into tidemill.executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason) -- when releases
  select id, token, attempt, execution, worker, claimed_at, began_at, finished_at, error, why from gone where not ends), -- when releases
again as ( -- when releases
  insert into tidemill.ready( -- when releases
    -- include: waiting_columns -- when releases
    , reason) -- when releases
  select -- when releases
    -- include: job_columns -- when releases
    , attempt - refund::int, crashes + crashed::int, token, coalesce(:now::timestamptz, now()) + delay, unique_key, false, why -- when releases
  from gone where new_state = 'pending' order by n), -- when releases
later as ( -- when releases
  insert into tidemill.scheduled( -- when releases
    -- include: waiting_columns -- when releases
    , reason) -- when releases
  select -- when releases
    -- include: job_columns -- when releases
    , attempt - refund::int, crashes + crashed::int, token, coalesce(:now::timestamptz, now()) + delay, unique_key, false, why -- when releases
  from gone where new_state = 'scheduled'), -- when releases
aside as ( -- when releases
  insert into tidemill.parked( -- when releases
    -- include: waiting_columns -- when releases
    , reason, state, wakes, result) -- when releases
  select -- when releases
    -- include: job_columns -- when releases
    , case when execution = 'suspended' then 0 else attempt - refund::int end, -- when releases
    case when execution = 'suspended' then 0 else crashes + crashed::int end, -- when releases
    token, coalesce(:now::timestamptz, now()) + delay, unique_key, false, why, -- when releases
    new_state, new_state = 'waiting' and delay > interval '0', case new_state when 'review_needed' then result end -- when releases
  from gone where new_state in ('waiting', 'review_needed')), -- when releases
-- include: light_jobs -- when light
-- include: release_keys(jobs=gone where ends and unique_key is not null; lets_go=false)
, -- when counted
returned as materialized ( -- when counted
  select n.name, count(*)::int as jobs -- when counted
  from gone g cross join lateral (select distinct x.name from jsonb_array_elements_text(g.limits::jsonb) as x(name)) n -- when counted
  group by n.name), -- when counted
counter as materialized ( -- when counted
  select u.name from tidemill.uses u where u.name = any(array(select name from returned)) -- when counted
  order by u.name for update), -- when counted
one_back as ( -- when counted
  update tidemill.uses u set used = greatest(u.used - 1, 0), changed_at = coalesce(:now::timestamptz, now()) -- when counted
  where u.name = any(array(select r.name from returned r join counter c on c.name = r.name where r.jobs = 1))), -- when counted
more_back as ( -- when counted
  update tidemill.uses u set used = greatest(u.used - r.jobs, 0), changed_at = coalesce(:now::timestamptz, now()) -- when counted
  from returned r -- when counted
  where u.name = any(array(select r.name from returned r join counter c on c.name = r.name where r.jobs > 1)) -- when counted
    and r.name = u.name) -- when counted
