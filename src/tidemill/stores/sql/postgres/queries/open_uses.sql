-- open_uses: makes names countable that are not yet. Waits for another that makes the same; names are taken in their order.
-- takes: now timestamptz, names texts
insert into tidemill.uses(name, changed_at)
select x.name, coalesce(:now::timestamptz, now()) from unnest(:names::text[]) as x(name)
where not exists (select from tidemill.uses u where u.name = x.name)
order by x.name
on conflict (name) do nothing
