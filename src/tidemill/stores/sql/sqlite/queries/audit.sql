-- audit: audit records after a number, in order. Index: the primary key.
-- takes: tenant text, after int8, limit int4
-- gives: number int8, at timestamptz, tenant text, who text, action text, subject text, before text, after text, hash text
select number, at, tenant, who, action, subject, before, after, hash
from tidemill_audit
where number > :after
  and tenant = :tenant -- when tenant
order by number limit :limit
