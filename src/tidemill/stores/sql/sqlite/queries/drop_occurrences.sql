-- drop_occurrences: deletes occurrences that a fire has used.
-- items: schedule_id uuid, id uuid, occurred_at timestamptz
-- gives: id uuid
delete from temp.tidemill_fit
;
insert or ignore into temp.tidemill_fit(id)
select id from tidemill_occurrences where schedule_id = :schedule_id and id = :id and occurred_at = :occurred_at
;
delete from tidemill_occurrences where schedule_id = :schedule_id and id = :id and occurred_at = :occurred_at
;
select id from temp.tidemill_fit
