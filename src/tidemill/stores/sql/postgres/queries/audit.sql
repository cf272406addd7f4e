-- audit: audit records between two numbers, in order. Index: the primary key.
-- takes: tenant text, after int8, before int8, who text, action text, subject text, limit int4
-- gives: number int8, at timestamptz, tenant text, who text, action text, subject text, before text, after text, hash text
select number, at, tenant, who, action, subject, before, after, hash
from tidemill.audit
where number > :after
  and number < :before -- when before
  and tenant = :tenant -- when tenant
  and who = :who -- when who
  and action = :action -- when action
  and subject = :subject -- when subject
order by number desc -- when newest
order by number -- when oldest
limit :limit
