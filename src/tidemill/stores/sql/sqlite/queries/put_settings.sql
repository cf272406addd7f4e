-- put_settings: writes settings; a description that is not given is unchanged.
-- takes: now timestamptz
-- items: key text, value text, description text, updated_by text
insert into tidemill_settings as s (key, value, description, updated_at, updated_by)
values (:key, :value, :description, :now, :updated_by)
on conflict (key) do update set
  value = excluded.value, description = coalesce(excluded.description, s.description), updated_at = excluded.updated_at,
  updated_by = excluded.updated_by
