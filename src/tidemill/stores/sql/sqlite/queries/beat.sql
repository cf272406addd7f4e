-- beat: renews the leases of workers that were not declared gone, also expired ones, and stores their reports.
-- Returns those workers, each with its jobs that have a cancel request, and the requests to it and its supervisor.
-- Indexes: running_worker and primary keys.
-- takes: now timestamptz, ids uuids, lease interval, reporters uuids, slots int8s, reports texts
-- gives: id uuid, state text, cancels text, paused bool, scale text
update tidemill_workers
set beat_at = :now, expires_at = :now + :lease, beats = beats + 1
  , report = coalesce((select json_extract(:reports, '$[' || x.key || ']') from json_each(:reporters) x -- when reporters
                       where unhex(x.value) = tidemill_workers.id), report) -- when reporters
  , concurrency = coalesce((select json_extract(:slots, '$[' || x.key || ']') from json_each(:reporters) x -- when reporters
                            where unhex(x.value) = tidemill_workers.id), concurrency) -- when reporters
where id in (select unhex(value) from json_each(:ids))
  and state <> 'stopped'
returning id, state,
  (select nullif(json_group_array(json_array(hex(r.id), r.token, r.cancel_reason)), '[]')
   from tidemill_running r where r.worker = tidemill_workers.id and r.cancel_reason is not null) as cancels,
  exists (select 1 from tidemill_worker_pauses p
          where p.supervisor = tidemill_workers.supervisor and p.place = tidemill_workers.place) as paused,
  (select json_array(s.number, s.processes, s.concurrency, s.threads, s.children)
   from tidemill_worker_scales s where s.supervisor = tidemill_workers.supervisor) as scale
