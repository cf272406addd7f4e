-- clamp_starts: moves starts in the future to now; the names are already locked. A clock that is set back must not block a rate for
-- longer than its window.
-- takes: now timestamptz, names texts
update tidemill_starts set begun_at = :now where name in (select value from json_each(:names)) and begun_at > :now
