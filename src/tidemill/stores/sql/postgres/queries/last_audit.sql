-- last_audit: the end of the hash chain.
-- gives: number int8, hash text
select number, hash from tidemill.audit order by number desc limit 1
