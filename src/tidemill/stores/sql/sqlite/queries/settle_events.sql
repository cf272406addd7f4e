-- settle_events: deletes events that were handled.
-- takes: seqs int8s
-- gives: seq int8
delete from tidemill_job_events where seq in (select value from json_each(:seqs)) returning seq
