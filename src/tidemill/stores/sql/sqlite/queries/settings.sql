-- settings: all settings by key.
-- gives: key text, value text, description text, updated_at timestamptz, updated_by text
select key, value, description, updated_at, updated_by from tidemill_settings order by key
