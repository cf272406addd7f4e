-- orphans: jobs held by workers that were declared gone or that have no row, the oldest claim first.
-- takes: limit int4
select
  -- include: held_row
from tidemill.running r left join tidemill.workers w on w.id = r.worker
where w.id is null or w.state = 'stopped'
order by r.claimed_at, r.id limit :limit
