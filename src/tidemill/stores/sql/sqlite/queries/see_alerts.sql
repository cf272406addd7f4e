-- see_alerts: updates open alerts.
-- takes: now timestamptz
-- items: id uuid, severity text, text text, value float8
-- gives: id uuid
delete from temp.tidemill_fit
;
insert or ignore into temp.tidemill_fit(id) select id from tidemill_alerts where id = :id and recovered_at is null
;
update tidemill_alerts set severity = :severity, text = :text, value = :value, seen_at = :now where id = :id and recovered_at is null
;
select id from temp.tidemill_fit
