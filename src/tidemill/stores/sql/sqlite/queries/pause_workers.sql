-- pause_workers: pauses the places of live workers that take requests; returns the workers that were not paused. Index: the primary
-- keys.
-- takes: ids uuids
-- gives: id uuid
select w.id from tidemill_workers w
where w.id in (select unhex(value) from json_each(:ids)) and w.state <> 'stopped' and w.supervisor is not null
  and not exists (select 1 from tidemill_worker_pauses p where p.supervisor = w.supervisor and p.place = w.place)
;
insert into tidemill_worker_pauses(supervisor, place)
select supervisor, place from tidemill_workers
where id in (select unhex(value) from json_each(:ids)) and state <> 'stopped' and supervisor is not null
on conflict do nothing
