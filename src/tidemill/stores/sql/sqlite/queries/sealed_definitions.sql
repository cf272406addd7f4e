-- sealed_definitions: the next definitions by id, with arguments that contain sealed values. Index: primary key.
-- takes: after uuid, limit int4
-- gives: id uuid, name text, part text, queue text, args text
select id, cast('' as text) as name, cast('' as text) as part, cast('' as text) as queue, case when args like '%$sealed%' or args like 'blob:%' then args end as args
from tidemill_definitions
where id > :after
order by id
limit :limit
