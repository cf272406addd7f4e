-- beat: renews the leases of workers that were not declared gone, also expired ones (a HOT update), and stores their reports.
-- Returns those workers, each with its jobs that have a cancel request, and the requests to it and its supervisor.
-- One statement, because every worker beats every few seconds and there is rarely a job to cancel. Indexes: running_worker and
-- primary keys.
-- Outside a transaction it commits locally: it does not wait for a synchronous standby.
-- takes: now timestamptz, ids uuids, lease interval, reporters uuids, slots int8s, reports texts
-- gives: id uuid, state text, cancels text, paused bool, scale text
update tidemill.workers w
set beat_at = coalesce(:now::timestamptz, now()), expires_at = coalesce(:now::timestamptz, now()) + :lease::interval, beats = beats + 1
  , report = coalesce((:reports::text[])[array_position(:reporters::uuid[], w.id)], w.report) -- when reporters
  , concurrency = coalesce((:slots::bigint[])[array_position(:reporters::uuid[], w.id)], w.concurrency) -- when reporters
where id = any(:ids::uuid[])
  and (select set_config('synchronous_commit', -- when alone
         case current_setting('synchronous_commit') when 'off' then 'off' else 'local' end, true)) is not null -- when alone
  and state <> 'stopped'
returning w.id, w.state,
  (select json_agg(json_build_array(r.id, r.token, r.cancel_reason))::text
   from tidemill.running r where r.worker = w.id and r.cancel_reason is not null) as cancels,
  exists (select from tidemill.worker_pauses p where p.supervisor = w.supervisor and p.place = w.place) as paused,
  (select json_build_array(s.number, s.processes, s.concurrency, s.threads, s.children)::text
   from tidemill.worker_scales s where s.supervisor = w.supervisor) as scale
