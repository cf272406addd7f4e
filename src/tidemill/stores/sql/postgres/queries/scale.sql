-- scale: stores the requested numbers of a supervisor that has a live worker; returns the number of the request. Index: the primary
-- key; the table of workers is small.
-- takes: supervisor uuid, processes int4, concurrency int4, threads int4, children int4
-- gives: number int8
insert into tidemill.worker_scales as s(supervisor, number, processes, concurrency, threads, children)
select :supervisor::uuid, 1, :processes::int, :concurrency::int, :threads::int, :children::int
where exists (select from tidemill.workers where supervisor = :supervisor::uuid and state <> 'stopped')
on conflict (supervisor) do update
set number = s.number + 1, processes = excluded.processes, concurrency = excluded.concurrency, threads = excluded.threads,
    children = excluded.children
returning number
