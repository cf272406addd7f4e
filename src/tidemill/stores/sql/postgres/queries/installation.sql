-- installation: which installation these tables are, and the database they live in. A copy of them keeps the first and not the second.
-- gives: value text, place text
select m.value, current_database()::text as place from tidemill.meta m where m.key = 'installation'
