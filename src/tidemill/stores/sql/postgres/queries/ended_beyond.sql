-- ended_beyond: the last ended job of a selection without its newest ones. Index: history_finished or archive_ended.
-- takes: tier text, newest int4
-- gives: finished_at timestamptz, id uuid
-- include: other_rules
select finished_at, id
from tidemill.history where -- when live
from tidemill.archive where tier = :tier and -- when tier
  -- include: governed
order by finished_at desc, id desc offset :newest limit 1
