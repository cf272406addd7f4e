-- uses: the counts of these names, or of all names in use, the most used first. The names in use are those of held jobs, which are
-- few: an index on the counts would have to be updated with every count.
-- takes: now timestamptz, names texts, limit int4
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select name, used, full_until_at, breaker, coalesce(:now::timestamptz, now()) as now from tidemill.uses
where true
  and used > 0 and name = any(array( -- when held
    select distinct x.name from tidemill.running r cross join lateral jsonb_array_elements_text(r.limits::jsonb) as x(name))) -- when held
  and name = any(:names::text[]) -- when names
order by used desc, name limit :limit
