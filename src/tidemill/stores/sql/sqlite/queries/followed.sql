-- followed: the definitions among these that a schedule names in its trigger. Index: tidemill_trigger_sources_name.
-- takes: ids uuids
-- gives: id uuid
select d.id from tidemill_definitions d
where d.id in (select unhex(value) from json_each(:ids))
  and exists (select 1 from tidemill_trigger_sources s
              where s.kind = 'definition' and s.tenant = d.tenant and s.name = d.key)
