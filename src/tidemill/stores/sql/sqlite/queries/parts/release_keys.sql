-- release_keys: releases the unique keys of these jobs, or keeps them until their windows have passed.
delete from temp.tidemill_keyed
;
insert into temp.tidemill_keyed(id, tenant, key)
select id, tenant, unique_key from {jobs}
;
delete from tidemill_uniques
where (tenant, key, job_id) in (select tenant, key, id from temp.tidemill_keyed)
  and (window_ends_at is null or window_ends_at <= :now or {lets_go})
;
update tidemill_uniques set live = 0
where (tenant, key, job_id) in (select tenant, key, id from temp.tidemill_keyed)
  and window_ends_at > :now
;
