-- sealed_definition_versions: the next versions of definitions, with bodies that contain sealed values. Index: primary key.
-- takes: after uuid, name text, limit int4
-- gives: id uuid, name text, part text, queue text, args text
select definition_id as id, printf('%09d', version) as name, cast('' as text) as part, cast('' as text) as queue, case when body like '%$sealed%' or body like 'blob:%' then body end as args
from tidemill_definition_versions
where (definition_id, version) > (:after, cast(coalesce(nullif(:name, ''), '0') as integer))
order by definition_id, version
limit :limit
