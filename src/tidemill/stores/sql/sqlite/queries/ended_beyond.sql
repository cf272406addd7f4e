-- ended_beyond: the last ended live job of a selection without its newest ones. Index: history_finished.
-- takes: newest int4
-- gives: finished_at timestamptz, id uuid
-- include: other_rules
select finished_at, id
from tidemill_history indexed by tidemill_history_finished
where
  -- include: governed
order by finished_at desc, id desc limit 1 offset :newest
