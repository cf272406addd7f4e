-- note_limits: records the limits that held jobs were counted against, if these are more than their own.
-- items: id uuid, limits text
update tidemill_running set limits = :limits where id = :id
