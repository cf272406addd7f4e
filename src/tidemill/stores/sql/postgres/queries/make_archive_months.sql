-- make_archive_months: makes the partitions of this month and the next two; returns 1 for each new one.
-- takes: now timestamptz
-- gives: made int4
select tidemill.make_archive_month(
  (date_trunc('month', coalesce(:now::timestamptz, now()) at time zone 'UTC') + make_interval(months => n)) at time zone 'UTC')::int as made
from generate_series(0, 2) n
