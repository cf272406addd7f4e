-- error_marks: the marks of groups of failures, for a tenant and for all tenants. Index: the primary key.
-- takes: tenant text
-- gives: tenant text, fingerprint text, status text, at timestamptz, marked_by text
select tenant, fingerprint, status, at, marked_by from tidemill.error_marks
where true
  and tenant in ('*', :tenant) -- when tenant
order by fingerprint, tenant
