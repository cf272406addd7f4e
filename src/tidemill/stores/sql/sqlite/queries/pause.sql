-- pause: adds pauses; existing ones are unchanged. Returns the new ones.
-- takes: now timestamptz
-- items: kind text, name text, reason text, paused_by text
-- gives: kind text, name text, reason text, paused_by text, paused_at timestamptz
delete from temp.tidemill_pausing
;
insert into temp.tidemill_pausing(kind, name)
select :kind, :name where not exists (select 1 from tidemill_pauses where kind = :kind and name = :name)
;
insert into tidemill_pauses(kind, name, reason, paused_by, paused_at)
values (:kind, :name, :reason, :paused_by, :now)
on conflict (kind, name) do nothing
;
select p.kind, p.name, p.reason, p.paused_by, p.paused_at
from temp.tidemill_pausing x cross join tidemill_pauses p on p.kind = x.kind and p.name = x.name
