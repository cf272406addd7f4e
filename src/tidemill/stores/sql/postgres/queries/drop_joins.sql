-- drop_joins: deletes the counter rows of these jobs and groups.
-- takes: ids uuids
delete from tidemill.joins where id = any(:ids::uuid[])
