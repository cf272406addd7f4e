-- note_limits: the limits that held jobs were counted against, where these are more than their own.
-- items: id uuid, limits text
update tidemill_running set limits = :limits where id = :id
