-- occurrences: the occurrences of schedules, by schedule, instant and id. Index: the primary key.
-- takes: ids uuids, limit int4
-- gives: schedule_id uuid, id uuid, source text, occurred_at timestamptz, outcome text, match text, payload text
select schedule_id, id, source, occurred_at, outcome, match, payload from tidemill_occurrences
where schedule_id in (select unhex(value) from json_each(:ids))
order by schedule_id, occurred_at, id limit :limit
