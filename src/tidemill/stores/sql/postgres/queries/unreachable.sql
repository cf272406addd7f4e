-- unreachable: waiting jobs that can no longer start, the longest noted first.
-- takes: limit int4
-- gives: job_id uuid, reason text, created_at timestamptz
select u.job_id, u.reason, u.created_at from tidemill.unreachable_jobs u
where exists (select from tidemill.parked p where p.id = u.job_id and p.state || '' = 'waiting' offset 0)
order by u.created_at, u.job_id limit :limit
