-- audit_gaps: the triggers of the audit table that are missing, disabled or changed.
-- gives: name text
select expected.name
from (values ('audit_append_only', 27), ('audit_no_truncate', 34)) as expected(name, kind)
where not exists (
  select 1
  from pg_catalog.pg_trigger made
  join pg_catalog.pg_proc body on body.oid = made.tgfoid
  where made.tgrelid = 'tidemill.audit'::regclass
    and made.tgname = expected.name
    -- 'O' and 'A' fire in ordinary sessions; 27 is before update or delete of each row, 34 before truncate.
    and made.tgenabled in ('O', 'A')
    and made.tgtype = expected.kind
    and made.tgqual is null
    and body.prosrc like ' begin raise exception %')
order by expected.name
