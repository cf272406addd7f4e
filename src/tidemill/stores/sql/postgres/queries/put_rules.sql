-- put_rules: writes rules that are new or changed; a pinned rule is replaced only by another pinned one.
-- takes: now timestamptz
-- items: name text, rule_kind text, max int8, per interval, burst int8, breaker text, pinned bool, changed_by text
-- gives: name text
insert into tidemill.limits as l (name, kind, max, per, burst, breaker, pinned, changed_at, changed_by)
select name, kind, max, per, burst, breaker, pinned, coalesce(:now::timestamptz, now()), changed_by
from unnest(:name::text[], :rule_kind::text[], :max::bigint[], :per::interval[], :burst::bigint[], :breaker::text[], :pinned::boolean[],
            :changed_by::text[]) as x(name, kind, max, per, burst, breaker, pinned, changed_by)
order by name
on conflict (name) do update
  set kind = excluded.kind, max = excluded.max, per = excluded.per, burst = excluded.burst, breaker = excluded.breaker,
      pinned = excluded.pinned, changed_at = excluded.changed_at, changed_by = excluded.changed_by
  where (excluded.pinned or not l.pinned)
    and (l.kind, l.max, l.per, l.burst, l.breaker, l.pinned)
        is distinct from (excluded.kind, excluded.max, excluded.per, excluded.burst, excluded.breaker, excluded.pinned)
returning l.name
