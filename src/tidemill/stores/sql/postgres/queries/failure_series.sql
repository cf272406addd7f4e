-- failure_series: failures of some groups per step since an instant. Index: failures_fingerprint.
-- takes: since timestamptz, step interval, tenant text, fingerprints texts
-- gives: fingerprint text, step int8, jobs int8
select fingerprint, floor(date_part('epoch', at - :since::timestamptz) / date_part('epoch', :step::interval))::int8 as step,
       sum(jobs)::int8 as jobs
from tidemill.failures
where fingerprint = any(:fingerprints::text[]) and at >= :since::timestamptz
  and tenant = :tenant -- when tenant
group by 1, 2
