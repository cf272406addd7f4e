-- audit_gaps: the triggers of the audit table that are missing or changed.
-- gives: name text
with expected(name, kind, other) as (
  values ('tidemill_audit_no_delete', '% before delete on tidemill_audit%begin select raise(abort,%', '% when %'),
         ('tidemill_audit_no_replace', '% before insert on tidemill_audit%when exists (%begin select raise(abort,%', ''),
         ('tidemill_audit_no_update', '% before update on tidemill_audit%begin select raise(abort,%', '% when %'))
select expected.name
from expected
where not exists (
  select 1
  from sqlite_schema made
  where made.type = 'trigger'
    and made.tbl_name = 'tidemill_audit'
    and made.name = expected.name
    and made.sql like expected.kind
    and made.sql not like expected.other)
order by expected.name
