-- erase_archived: deletes documents, and unique keys of these jobs unless they are live; returns the ids of the documents.
-- takes: tenant text, ids uuids
-- gives: id uuid
with gone as (
  delete from tidemill.archive
  where id = any(:ids::uuid[])
    and tenant = :tenant -- when tenant
  returning id),
keys_gone as (
  delete from tidemill.uniques u using gone g
  where u.job_id = g.id and not exists (select from tidemill.jobs j where j.id = g.id))
select id from gone
