-- post_signals: stores signals to live jobs, each once per key, up to a number of unread ones; returns the answer to each.
-- The items are judged one after another in a temporary table, so each sees the earlier ones of its batch.
-- Indexes: the primary keys of the job tables, signals_key, signals_unread.
-- takes: now timestamptz, most int4
-- items: job_id uuid, tenant text, name text, payload text, key text, source text
-- gives: n int8, answer text
delete from temp.tidemill_item_signal
;
insert into temp.tidemill_item_signal(job_id, tenant, name, payload, key, source, answer)
select x.job_id, j.tenant, :name, :payload, x.key, :source, case
  when j.state is null then 'missing'
  when exists (select 1 from tidemill_signals s where s.job_id = x.job_id and s.key = x.key)
    or exists (select 1 from temp.tidemill_item_signal y where y.job_id = x.job_id and y.key = x.key) then 'repeated'
  when j.state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered') then 'ended'
  when (select count(*) from (select 1 from tidemill_signals s where s.job_id = x.job_id and s.taken_at is null limit :most))
    + (select count(*) from temp.tidemill_item_signal y where y.job_id = x.job_id and y.answer = 'accepted') >= :most then 'full'
  else 'accepted' end
from (select :job_id as job_id, :tenant as tenant, :key as key) x
left join tidemill_jobs j on j.id = x.job_id and x.tenant in ('*', j.tenant)
;
insert into tidemill_signals(job_id, tenant, name, payload, key, source, created_at)
select job_id, tenant, name, payload, key, source, :now from temp.tidemill_item_signal where answer = 'accepted' order by n
;
select n, answer from temp.tidemill_item_signal order by n
