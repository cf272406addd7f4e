-- troubles: the latest failures and the start of their error messages. Index: history_troubled_at, backwards for each state.
-- takes: since timestamptz, tenant text, look int8
-- gives: id uuid, tenant text, task text, state text, finished_at timestamptz, error text, reason text
select h.id, h.tenant, h.task, h.state, h.finished_at, left(h.error, 3000) as error, left(h.reason, 200) as reason
from (
  select f.id, f.tenant, f.task, f.state, f.finished_at, f.error, f.reason
  from unnest(array['failed', 'timed_out', 'dead_lettered']) s(state) cross join lateral (
    select * from tidemill.history n
    where n.state = s.state and n.state <> 'completed' and n.finished_at >= :since
    order by n.finished_at desc, n.id desc limit :look) f
  order by f.finished_at desc, f.id desc limit :look) h
where true
  and h.tenant = :tenant -- when tenant
order by h.finished_at desc, h.id desc
