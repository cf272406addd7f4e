-- installation: the id of this installation, and its file. A copy of the tables keeps the former but not the latter.
-- gives: value text, place text
select m.value as value, (select d.file from pragma_database_list d where d.name = 'main') as place
from tidemill_meta m where m.key = 'installation'
