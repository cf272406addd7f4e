-- event_backlogs: the waiting events of each subscription.
-- gives: subscription text, waiting int8, failing int8, oldest_at timestamptz, error text
select subscription, count(*) as waiting, sum(attempts > 0) as failing, min(at) as oldest_at,
  (select error from tidemill_job_events f where f.subscription = e.subscription and f.attempts > 0 order by f.due_at desc limit 1) as error
from tidemill_job_events e group by subscription order by subscription
