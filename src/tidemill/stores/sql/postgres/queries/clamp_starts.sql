-- clamp_starts: moves starts in the future to now; the names are already locked. A clock that is set back must not block a rate for
-- longer than its window.
-- takes: now timestamptz, names texts
update tidemill.starts set begun_at = coalesce(:now::timestamptz, now()) where name = any(:names::text[]) and begun_at > coalesce(:now::timestamptz, now())
