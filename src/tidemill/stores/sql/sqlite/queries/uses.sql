-- uses: the counts of these names, or of all names in use, the most used first. The names in use are those of held jobs, which are
-- few: an index on the counts would have to be updated with every count.
-- takes: now timestamptz, names texts, limit int4
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select name, used, full_until_at, breaker, :now as now from tidemill_uses
where true
  and used > 0 and name in (select x.value from tidemill_running r, json_each(r.limits) x) -- when held
  and name in (select value from json_each(:names)) -- when names
order by used desc, name limit :limit
