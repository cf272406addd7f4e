-- ended_beyond: the last ended job of a selection without its newest ones. Index: history_finished or archive_ended.
-- takes: tier text, newest int4
-- gives: finished_at timestamptz, id uuid
select finished_at, id
from tidemill_history indexed by tidemill_history_finished where -- when live
from tidemill_archive indexed by tidemill_archive_ended where tier = :tier and -- when tier
  -- include: governed
order by finished_at desc, id desc limit 1 offset :newest
