-- put_rules: writes rules that are new or changed; a pinned rule is replaced only by another pinned one.
-- takes: now timestamptz
-- items: name text, rule_kind text, max int8, per interval, burst int8, breaker text, pinned bool, changed_by text
-- gives: name text
delete from temp.tidemill_names
;
insert or ignore into temp.tidemill_names(name)
select :name where not exists (
  select 1 from tidemill_limits l
  where l.name = :name
    and (l.pinned and not :pinned
         or (l.kind, l.max, l.pinned) = (:rule_kind, :max, :pinned) and l.per is :per and l.burst is :burst and l.breaker is :breaker))
;
insert into tidemill_limits(name, kind, max, per, burst, breaker, pinned, changed_at, changed_by)
select :name, :rule_kind, :max, :per, :burst, :breaker, :pinned, :now, :changed_by
where :name in (select name from temp.tidemill_names)
on conflict (name) do update
  set kind = excluded.kind, max = excluded.max, per = excluded.per, burst = excluded.burst, breaker = excluded.breaker,
      pinned = excluded.pinned, changed_at = excluded.changed_at, changed_by = excluded.changed_by
;
select name from temp.tidemill_names
