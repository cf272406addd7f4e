-- drop_subscription: deletes all waiting events of a subscription.
-- takes: subscription text
-- gives: seq int8
delete from tidemill.job_events where subscription = :subscription returning seq
