-- open_alerts: inserts alerts, each unless one with its code and subject is open.
-- takes: now timestamptz
-- items: id uuid, code text, subject text, severity text, text text, value float8, threshold float8, since_at timestamptz
-- gives: id uuid
delete from temp.tidemill_fit
;
insert or ignore into temp.tidemill_fit(id)
select :id where not exists (select 1 from tidemill_alerts where code = :code and subject = :subject and recovered_at is null)
;
insert into tidemill_alerts(id, code, subject, severity, text, value, threshold, since_at, opened_at, seen_at)
values (:id, :code, :subject, :severity, :text, :value, :threshold, :since_at, :now, :now)
on conflict do nothing
;
select id from temp.tidemill_fit where id in (select id from tidemill_alerts)
