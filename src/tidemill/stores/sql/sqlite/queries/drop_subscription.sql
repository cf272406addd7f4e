-- drop_subscription: deletes all waiting events of a subscription.
-- takes: subscription text
-- gives: seq int8
delete from tidemill_job_events where subscription = :subscription returning seq
