-- declared_tasks: all records of tasks, or those with these names, by name. Index: the primary key.
-- takes: names texts
-- gives: name text, description text, owner text, schema text, settings text, deployed_at timestamptz, seen_at timestamptz
select name, description, owner, schema, settings, deployed_at, seen_at
from tidemill_tasks
where true
  and name in (select value from json_each(:names)) -- when names
order by name
