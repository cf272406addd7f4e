-- drop_joins: deletes the counter rows of these jobs and groups.
-- takes: ids uuids
delete from tidemill_joins where id in (select unhex(value) from json_each(:ids))
