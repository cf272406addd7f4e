-- forget_uses: deletes counts of zero that were unchanged for long, and the starts under their names.
-- takes: now timestamptz, idle interval, limit int4
-- gives: name text
with idle as materialized (
  select ctid as place, name from tidemill.uses
  where used = 0 and changed_at < coalesce(:now::timestamptz, now()) - :idle::interval limit :limit for update skip locked),
old as (delete from tidemill.starts s using idle i where s.name = i.name)
delete from tidemill.uses where ctid = any(array(select place from idle)) returning name
