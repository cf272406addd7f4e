-- rules: all rules by name.
-- gives: name text, kind text, max int8, per interval, burst int8, breaker text, pinned bool, changed_at timestamptz
-- gives: changed_by text
select name, kind, max, per, burst, breaker, pinned, changed_at, changed_by from tidemill.limits order by name collate "C"
