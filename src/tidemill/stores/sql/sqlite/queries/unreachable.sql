-- unreachable: waiting jobs that can no longer start, the longest noted first.
-- takes: limit int4
-- gives: job_id uuid, reason text, created_at timestamptz
select u.job_id, u.reason, u.created_at from tidemill_unreachable_jobs u
where exists (select 1 from tidemill_parked p where p.id = u.job_id and p.state = 'waiting')
order by u.created_at, u.job_id limit max(:limit, 0)
