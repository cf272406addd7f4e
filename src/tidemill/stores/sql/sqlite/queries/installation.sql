-- installation: which installation these tables are, and the file they live in. A copy of them keeps the first and not the second.
-- gives: value text, place text
select m.value as value, (select d.file from pragma_database_list d where d.name = 'main') as place
from tidemill_meta m where m.key = 'installation'
