-- last_audit: where the chain ends.
-- gives: number int8, hash text
select number, hash from tidemill_audit order by number desc limit 1
