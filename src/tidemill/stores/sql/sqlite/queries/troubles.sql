-- troubles: the latest failures and the start of their error messages. Index: history_troubled_at, backwards for each state.
-- takes: since timestamptz, tenant text, look int8
-- gives: id uuid, tenant text, task text, state text, finished_at timestamptz, error text, reason text
select h.id, h.tenant, h.task, h.state, h.finished_at, substr(h.error, 1, 3000) as error, substr(h.reason, 1, 200) as reason
from (
  select * from (
    select * from (
      select id, tenant, task, state, finished_at, error, reason from tidemill_history indexed by tidemill_history_troubled_at
      where state = 'failed' and state <> 'completed' and finished_at >= :since
      order by finished_at desc, id desc limit max(:look, 0))
    union all
    select * from (
      select id, tenant, task, state, finished_at, error, reason from tidemill_history indexed by tidemill_history_troubled_at
      where state = 'timed_out' and state <> 'completed' and finished_at >= :since
      order by finished_at desc, id desc limit max(:look, 0))
    union all
    select * from (
      select id, tenant, task, state, finished_at, error, reason from tidemill_history indexed by tidemill_history_troubled_at
      where state = 'dead_lettered' and state <> 'completed' and finished_at >= :since
      order by finished_at desc, id desc limit max(:look, 0)))
  order by finished_at desc, id desc limit max(:look, 0)) h
where true
  and h.tenant = :tenant -- when tenant
order by h.finished_at desc, h.id desc
