-- uses: what is counted of these names, or of those in use, the most used first. What is in use is what the held
-- jobs count against, and these are few: an index by what is counted would be written at every count.
-- takes: now timestamptz, names texts, limit int4
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select name, used, full_until_at, breaker, :now as now from tidemill_uses
where true
  and used > 0 and name in (select x.value from tidemill_running r, json_each(r.limits) x) -- when held
  and name in (select value from json_each(:names)) -- when names
order by used desc, name limit :limit
