-- count_uses: adds to the held counts of these names. Locks the names in their order, and waits for other transactions.
-- takes: now timestamptz
-- items: name text, jobs int4, full_until_at timestamptz
with item as materialized (
  select * from unnest(:name::text[], :jobs::int[], :full_until_at::timestamptz[]) as x(name, jobs, full_until_at)),
locked as materialized (
  select u.name from tidemill.uses u where u.name = any(:name::text[]) order by u.name for update)
update tidemill.uses u
set used = greatest(u.used + x.jobs, 0), full_until_at = coalesce(x.full_until_at, u.full_until_at),
    changed_at = coalesce(:now::timestamptz, now())
from item x where u.name = any(array(select name from locked)) and x.name = u.name
