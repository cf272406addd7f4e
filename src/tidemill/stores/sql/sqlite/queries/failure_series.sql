-- failure_series: failures of some groups per step since an instant. Index: failures_fingerprint.
-- takes: since timestamptz, step interval, tenant text, fingerprints texts
-- gives: fingerprint text, step int8, jobs int8
select fingerprint, (at - :since) / :step as step, sum(jobs) as jobs
from tidemill_failures
where fingerprint in (select value from json_each(:fingerprints)) and at >= :since
  and tenant = :tenant -- when tenant
group by 1, 2
