-- followed: the definitions among these that a schedule names in its trigger. Index: trigger_sources_name.
-- takes: ids uuids
-- gives: id uuid
select d.id from tidemill.definitions d
where d.id = any(:ids::uuid[])
  and exists (select from tidemill.trigger_sources s
              where s.kind = 'definition' and s.tenant = d.tenant and s.name = d.key)
