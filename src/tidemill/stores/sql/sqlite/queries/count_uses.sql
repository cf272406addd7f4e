-- count_uses: adds to the held counts of these names.
-- takes: now timestamptz
-- items: name text, jobs int4, full_until_at timestamptz
update tidemill_uses
set used = max(used + :jobs, 0), full_until_at = coalesce(:full_until_at, full_until_at), changed_at = :now
where name = :name
