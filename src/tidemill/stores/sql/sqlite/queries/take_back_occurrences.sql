-- take_back_occurrences: deletes the unused occurrences of jobs that are reopened. Index: tidemill_occurrences_id.
-- takes: ids uuids
delete from tidemill_occurrences where id in (select unhex(value) from json_each(:ids))
