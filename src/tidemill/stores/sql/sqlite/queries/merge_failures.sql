-- merge_failures: merges failures whose job is no longer live, per hour and group, without their messages; returns their number.
-- Indexes: failures_at, the primary key of history.
-- takes: before timestamptz, limit int4
-- gives: rows int8
delete from temp.tidemill_merging
;
insert into temp.tidemill_merging(seq)
select f.seq from tidemill_failures f
where f.at < :before and f.job_id is not null and not exists (select 1 from tidemill_history h where h.id = f.job_id)
order by f.at, f.job_id limit :limit
;
insert into tidemill_failures(at, first_at, tenant, task, fingerprint, variant, cause, message, jobs)
select max(f.at), min(f.first_at), f.tenant, f.task, f.fingerprint, '', min(f.cause), '', sum(f.jobs)
from temp.tidemill_merging m join tidemill_failures f on f.seq = m.seq
group by f.at / 3600000000, f.tenant, f.task, f.fingerprint
;
delete from tidemill_failures where seq in (select seq from temp.tidemill_merging)
;
select count(*) as rows from temp.tidemill_merging
