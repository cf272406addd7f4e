-- ended_beyond: the last ended live job of a selection without its newest ones. Index: history_finished.
-- takes: newest int4
-- gives: finished_at timestamptz, id uuid
-- include: other_rules
select finished_at, id
from tidemill_history h indexed by tidemill_history_finished
where
  -- include: governed
  and not (h.tied and (
    -- include: needed_job
    ))
  and not (h.tied and exists ( -- when whole
    select 1 from tidemill_details t cross join tidemill_flows f on f.id = t.flow_id where t.id = h.id)) -- when whole
order by finished_at desc, id desc limit 1 offset :newest
