-- orphan_blobs: blobs that no job needs: no archived job has them, and no stored job has them as its arguments or its last result.
-- Index: blobs_created, then one lookup per table of jobs.
-- takes: now timestamptz, older_than interval, limit int4
-- gives: job_id uuid, number int8, place text
select b.job_id, b.number, b.place from tidemill_blobs b
where b.part = 0 and not b.archived and b.created_at <= :now - :older_than
  and not exists (select 1 from tidemill_ready j where j.id = b.job_id and b.number in (0, j.token))
  and not exists (select 1 from tidemill_scheduled j where j.id = b.job_id and b.number in (0, j.token))
  and not exists (select 1 from tidemill_parked j where j.id = b.job_id and b.number in (0, j.token))
  and not exists (select 1 from tidemill_running j where j.id = b.job_id and b.number in (0, j.token))
  and not exists (select 1 from tidemill_history j where j.id = b.job_id and b.number in (0, j.token))
order by b.created_at limit max(:limit, 0)
