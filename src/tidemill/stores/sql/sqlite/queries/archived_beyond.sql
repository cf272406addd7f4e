-- archived_beyond: the last ended archived job of a selection without its newest ones. Index: archive_ended.
-- takes: tier text, newest int4
-- gives: finished_at timestamptz, id uuid
-- include: other_rules
select finished_at, id
from tidemill_archive indexed by tidemill_archive_ended
where tier = :tier and
  -- include: governed
order by finished_at desc, id desc limit 1 offset :newest
