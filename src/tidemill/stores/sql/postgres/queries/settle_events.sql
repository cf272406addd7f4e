-- settle_events: deletes events that were handled.
-- takes: seqs int8s
-- gives: seq int8
delete from tidemill.job_events where seq = any(:seqs::bigint[]) returning seq
