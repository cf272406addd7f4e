-- retake_keys: lets ended jobs that are about to be reopened take their unique keys again; returns those whose key is held.
-- takes: now timestamptz
-- items: id uuid, tenant text, expect text
-- gives: id uuid
delete from temp.tidemill_keyed
;
insert into temp.tidemill_keyed(id, tenant, key)
select id, tenant, unique_key from tidemill_history
where id = :id and :tenant in ('*', tenant) and unique_key is not null
  and instr(',' || :expect || ',', ',' || state || ',') > 0
;
insert into tidemill_uniques as u (tenant, key, job_id, live)
select tenant, key, id, 1 from temp.tidemill_keyed where true order by n
on conflict (tenant, key) do update
  set job_id = excluded.job_id, live = 1, window_ends_at = case when u.job_id = excluded.job_id then u.window_ends_at end
  where u.job_id = excluded.job_id or (not u.live and (u.window_ends_at is null or u.window_ends_at <= :now))
;
select id from temp.tidemill_keyed k
where not exists (select 1 from tidemill_uniques u where u.tenant = k.tenant and u.key = k.key and u.job_id = k.id and u.live)
