-- change_breaker: writes a breaker's state if it is still the one that was read.
-- takes: now timestamptz, name text, before text, after text
-- gives: name text
update tidemill.uses set breaker = :after::text, changed_at = coalesce(:now::timestamptz, now())
where name = :name::text and breaker is not distinct from :before::text
returning name
