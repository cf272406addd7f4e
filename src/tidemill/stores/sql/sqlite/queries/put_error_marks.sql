-- put_error_marks: writes the marks of groups of failures.
-- takes: now timestamptz
-- items: tenant text, fingerprint text, status text, marked_by text
insert into tidemill_error_marks(tenant, fingerprint, status, at, marked_by)
values (:tenant, :fingerprint, :status, :now, :marked_by)
on conflict (tenant, fingerprint) do update set status = excluded.status, at = excluded.at, marked_by = excluded.marked_by
