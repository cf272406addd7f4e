-- unique_holders: the holders of these keys. Index: uniques' primary key.
-- takes: now timestamptz
-- items: tenant text, key text
-- gives: tenant text, key text, job_id uuid
select u.tenant, u.key, u.job_id
from tidemill.uniques u
join unnest(:tenant::text[], :key::text[]) as x(tenant, key) on u.tenant = x.tenant and u.key = x.key
where u.live or u.window_ends_at > coalesce(:now::timestamptz, now())
