-- scale: stores the requested numbers of a supervisor that has a live worker; returns the number of the request. Index: the primary
-- key; the table of workers is small.
-- takes: supervisor uuid, processes int4, concurrency int4, threads int4, children int4
-- gives: number int8
insert into tidemill_worker_scales(supervisor, number, processes, concurrency, threads, children)
select :supervisor, 1, :processes, :concurrency, :threads, :children
where exists (select 1 from tidemill_workers where supervisor = :supervisor and state <> 'stopped')
on conflict (supervisor) do update
set number = number + 1, processes = excluded.processes, concurrency = excluded.concurrency, threads = excluded.threads,
    children = excluded.children
returning number
