-- uses: what is counted of these names, or of those in use, the most used first. What is in use is what the held
-- jobs count against, and these are few: an index by what is counted would be written at every count.
-- takes: now timestamptz, names texts, limit int4
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select name, used, full_until_at, breaker, coalesce(:now::timestamptz, now()) as now from tidemill.uses
where true
  and used > 0 and name = any(array( -- when held
    select distinct x.name from tidemill.running r cross join lateral jsonb_array_elements_text(r.limits::jsonb) as x(name))) -- when held
  and name = any(:names::text[]) -- when names
order by used desc, name limit :limit
