-- beat: renews the leases of workers that were not declared gone, also expired ones.
-- Returns those workers, each with its jobs that have a cancel request.
-- Index: running_worker.
-- takes: now timestamptz, ids uuids, lease interval
-- gives: id uuid, state text, cancels text
update tidemill_workers
set beat_at = :now, expires_at = :now + :lease, beats = beats + 1
where id in (select unhex(value) from json_each(:ids))
  and state <> 'stopped'
returning id, state,
  (select nullif(json_group_array(json_array(hex(r.id), r.token, r.cancel_reason)), '[]')
   from tidemill_running r where r.worker = tidemill_workers.id and r.cancel_reason is not null) as cancels
