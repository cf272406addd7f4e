-- pause_workers: pauses the places of live workers that take requests; returns the workers that were not paused. Index: the primary
-- keys.
-- takes: ids uuids
-- gives: id uuid
with asked as materialized (
  select id, supervisor, place from tidemill.workers
  where id = any(:ids::uuid[]) and state <> 'stopped' and supervisor is not null),
added as (
  insert into tidemill.worker_pauses(supervisor, place) select distinct supervisor, place from asked order by 1, 2
  on conflict do nothing returning supervisor, place)
select a.id from asked a join added d on d.supervisor = a.supervisor and d.place = a.place
