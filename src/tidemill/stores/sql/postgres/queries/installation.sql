-- installation: the id of this installation, and its database. A copy of the tables keeps the former but not the latter.
-- gives: value text, place text
select m.value, current_database()::text as place from tidemill.meta m where m.key = 'installation'
