-- remove_archived: deletes documents whose tier and fingerprint are unchanged; returns the deleted ids.
-- items: id uuid, tier text, fingerprint text
-- gives: id uuid
delete from tidemill_archive where id = :id and tier = :tier and fingerprint = :fingerprint
returning id
