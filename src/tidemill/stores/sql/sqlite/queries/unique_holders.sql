-- unique_holders: the holders of these keys. Index: uniques' primary key.
-- takes: now timestamptz
-- items: tenant text, key text
-- gives: tenant text, key text, job_id uuid
delete from temp.tidemill_holders
;
insert into temp.tidemill_holders(tenant, key, job_id)
select tenant, key, job_id from tidemill_uniques
where tenant = :tenant and key = :key and (live or window_ends_at > :now)
;
select tenant, key, job_id from temp.tidemill_holders
