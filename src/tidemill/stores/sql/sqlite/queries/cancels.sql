-- cancels: held jobs of these workers that are to stop. Index: running_worker.
-- takes: ids uuids
-- gives: id uuid, token int8, worker uuid, reason text
select id, token, worker, cancel_reason as reason
from tidemill_running where worker in (select unhex(value) from json_each(:ids)) and cancel_reason is not null order by id
