-- take_back_occurrences: deletes the unused occurrences of jobs that are reopened. Index: occurrences_id.
-- takes: ids uuids
delete from tidemill.occurrences where id = any(:ids::uuid[])
