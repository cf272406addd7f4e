-- ended_beyond: the last ended live job of a selection without its newest ones. Index: history_finished.
-- takes: newest int4
-- gives: finished_at timestamptz, id uuid
-- include: other_rules
select finished_at, id
from tidemill.history h
where
  -- include: governed
  and not (h.tied and (
    -- include: needed_job
    ))
  and not (h.tied and exists ( -- when whole
    select from tidemill.details t join tidemill.flows f on f.id = t.flow_id where t.id = h.id)) -- when whole
order by finished_at desc, id desc offset :newest::int4 limit 1
