-- schedules: the matching schedules, by tenant and key.
-- takes: tenant text, ids uuids, keys texts, definition_id uuid, scope text
-- gives: id uuid, tenant text, key text, definition_id uuid, task text, trigger text, timezone text, calendar text
-- gives: exclude text, args text, options text, misfire text, overlap text, scope text, source text, enabled bool, note text
-- gives: revision int4, created_at timestamptz, updated_at timestamptz, since_at timestamptz, last_fire_at timestamptz
-- gives: next_fire_at timestamptz
select id, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options, misfire, overlap, scope,
       source, enabled, note, revision, created_at, updated_at, since_at, last_fire_at, next_fire_at
from tidemill.schedules
where true
  and tenant = :tenant -- when tenant
  and id = any(:ids::uuid[]) -- when ids
  and key = any(:keys::text[]) -- when keys
  and definition_id = :definition_id -- when definition_id
  and scope = :scope -- when scope
order by tenant, key collate "C"
