-- put_settings: writes settings; a description that is not given is unchanged.
-- takes: now timestamptz
-- items: key text, value text, description text, updated_by text
insert into tidemill.settings as s (key, value, description, updated_at, updated_by)
select x.key, x.value, x.description, coalesce(:now::timestamptz, now()), x.updated_by
from unnest(:key::text[], :value::text[], :description::text[], :updated_by::text[]) as x(key, value, description, updated_by)
order by x.key
on conflict (key) do update set
  value = excluded.value, description = coalesce(excluded.description, s.description), updated_at = excluded.updated_at,
  updated_by = excluded.updated_by
