-- reopen_groups: lets ended groups run again, in their next round; returns the states in which they had ended.
-- takes: ids uuids
-- gives: id uuid, state text
delete from temp.tidemill_reopened
;
insert into temp.tidemill_reopened(id, state)
select id, state from tidemill_flows where id in (select unhex(value) from json_each(:ids)) and ended_at is not null
;
update tidemill_flows set ended_at = null, state = 'running', round = round + 1 where id in (select id from temp.tidemill_reopened)
;
select id, state from temp.tidemill_reopened
