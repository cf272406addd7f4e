-- open_uses: inserts missing counts for names. Waits for a transaction that inserts the same; names are taken in their order.
-- Each is looked up in the index: a join with the counts would read all of them.
-- takes: now timestamptz, names texts
insert into tidemill.uses(name, changed_at)
select x.name, coalesce(:now::timestamptz, now()) from unnest(:names::text[]) as x(name)
where (select count(*) from (select from tidemill.uses u where u.name = x.name limit 1) o) = 0
order by x.name collate "C"
on conflict (name) do nothing
