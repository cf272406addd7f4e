-- resume: deletes pauses; returns those that existed.
-- items: kind text, name text
-- gives: kind text, name text, reason text, paused_by text, paused_at timestamptz
delete from temp.tidemill_resumed
;
insert into temp.tidemill_resumed(kind, name, reason, paused_by, paused_at)
select kind, name, reason, paused_by, paused_at from tidemill_pauses where kind = :kind and name = :name
;
delete from tidemill_pauses where kind = :kind and name = :name
;
select kind, name, reason, paused_by, paused_at from temp.tidemill_resumed
