-- uses: what is counted of these names, or of those in use, the most used first. Index: uses_held.
-- takes: now timestamptz, names texts, limit int4
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select name, used, full_until_at, breaker, :now as now from tidemill_uses
where true
  and used > 0 -- when held
  and name in (select value from json_each(:names)) -- when names
order by used desc, name limit :limit
