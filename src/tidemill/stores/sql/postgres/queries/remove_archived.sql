-- remove_archived: deletes documents whose tier and fingerprint are unchanged; returns the deleted ids.
-- items: id uuid, tier text, fingerprint text
-- gives: id uuid
delete from tidemill.archive a
using unnest(:id::uuid[], :tier::text[], :fingerprint::text[]) as x(id, tier, fingerprint)
where a.id = x.id and a.tier = x.tier and a.fingerprint = x.fingerprint
returning a.id
