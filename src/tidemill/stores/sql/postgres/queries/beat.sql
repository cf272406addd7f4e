-- beat: renews the leases of workers that were not declared gone, also expired ones (a HOT update).
-- Returns those workers, each with its jobs that have a cancel request.
-- One statement, because every worker beats every few seconds and there is rarely a job to cancel. Index: running_worker.
-- Outside a transaction it commits locally: it does not wait for a synchronous standby.
-- takes: now timestamptz, ids uuids, lease interval
-- gives: id uuid, state text, cancels text
update tidemill.workers w
set beat_at = coalesce(:now::timestamptz, now()), expires_at = coalesce(:now::timestamptz, now()) + :lease::interval, beats = beats + 1
where id = any(:ids::uuid[])
  and (select set_config('synchronous_commit', -- when alone
         case current_setting('synchronous_commit') when 'off' then 'off' else 'local' end, true)) is not null -- when alone
  and state <> 'stopped'
returning w.id, w.state,
  (select json_agg(json_build_array(r.id, r.token, r.cancel_reason))::text
   from tidemill.running r where r.worker = w.id and r.cancel_reason is not null) as cancels
