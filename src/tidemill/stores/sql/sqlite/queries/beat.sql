-- beat: renews the leases of workers that are still alive; answers with those, each with the jobs that are to stop.
-- Index: running_worker.
-- takes: now timestamptz, ids uuids, lease interval
-- gives: id uuid, state text, cancels text
update tidemill_workers
set beat_at = :now, expires_at = :now + :lease, beats = beats + 1
where id in (select unhex(value) from json_each(:ids))
  and expires_at > :now
returning id, state,
  (select nullif(json_group_array(json_array(hex(r.id), r.token, r.cancel_reason)), '[]')
   from tidemill_running r where r.worker = tidemill_workers.id and r.cancel_reason is not null) as cancels
