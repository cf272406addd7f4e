-- open_uses: inserts missing counts for names.
-- takes: now timestamptz, names texts
insert into tidemill_uses(name, changed_at)
select value, :now from json_each(:names) where true
on conflict (name) do nothing
