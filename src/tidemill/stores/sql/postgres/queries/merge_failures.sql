-- merge_failures: merges failures whose job is no longer live, per hour and group, without their messages; returns their number.
-- One statement deletes and inserts, so every failure is counted once at any time. Indexes: failures_at, the primary key of history.
-- takes: before timestamptz, limit int4
-- gives: rows int8
with old as materialized (
  delete from tidemill.failures where ctid = any(array(
    select f.ctid from tidemill.failures f
    where f.at < :before and f.job_id is not null and not exists (select from tidemill.history h where h.id = f.job_id)
    order by f.at, f.job_id limit :limit))
  returning *),
merged as (
  insert into tidemill.failures(at, first_at, tenant, task, fingerprint, variant, cause, message, jobs)
  select max(at), min(first_at), tenant, task, fingerprint, '', min(cause), '', sum(jobs)
  from old group by date_bin('1 hour', at, 'epoch'), tenant, task, fingerprint)
select count(*) as rows from old
