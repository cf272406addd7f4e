-- put_error_marks: writes the marks of groups of failures. Locks the marks in the order of their keys.
-- takes: now timestamptz
-- items: tenant text, fingerprint text, status text, marked_by text
insert into tidemill.error_marks(tenant, fingerprint, status, at, marked_by)
select x.tenant, x.fingerprint, x.status, coalesce(:now::timestamptz, now()), x.marked_by
from unnest(:tenant::text[], :fingerprint::text[], :status::text[], :marked_by::text[]) as x(tenant, fingerprint, status, marked_by)
order by x.tenant, x.fingerprint
on conflict (tenant, fingerprint) do update set status = excluded.status, at = excluded.at, marked_by = excluded.marked_by
