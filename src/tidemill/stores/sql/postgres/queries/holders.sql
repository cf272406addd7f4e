-- holders: the number of jobs that each worker holds. Reads all held jobs, which are few.
-- takes: tenant text
-- gives: worker uuid, claimed int8, running int8, first_claim_at timestamptz, last_claim_at timestamptz
select worker, count(*) filter (where state = 'claimed') as claimed, count(*) filter (where state = 'running') as running,
       min(claimed_at) as first_claim_at, max(claimed_at) as last_claim_at
from tidemill.running
where true
  and tenant = :tenant -- when tenant
group by worker order by worker
