-- drop_occurrences: deletes occurrences that a fire has used.
-- items: schedule_id uuid, id uuid, occurred_at timestamptz
-- gives: id uuid
delete from tidemill.occurrences o
using unnest(:schedule_id::uuid[], :id::uuid[], :occurred_at::timestamptz[]) as x(schedule_id, id, occurred_at)
where o.schedule_id = x.schedule_id and o.id = x.id and o.occurred_at = x.occurred_at
returning o.id
