-- ended_series: the number of jobs that ended in each step, and of those that match. Index: history_finished only, except for a tenant.
-- Counts step by step backwards up to the bound: counting a range of the index costs a third of sorting it into steps.
-- takes: since timestamptz, until timestamptz, step interval, tenant text, look int8
-- gives: at timestamptz, seen int8, total int8
with recursive counted as (
  select :until::timestamptz as at, 0::int8 as seen, 0::int8 as total, :look::int8 as room
  union all
  select c.at - :step::interval, n.seen, n.total, c.room - n.seen
  from counted c cross join lateral (
    select count(*) as seen,
           count(*) filter (where true
             and h.tenant = :tenant -- when tenant
           ) as total
    from (
      select finished_at
             , tenant -- when tenant
      from tidemill.history
      where finished_at >= c.at - :step::interval and finished_at < c.at
      order by finished_at desc limit c.room) h) n
  where c.at > :since and c.room > 0)
select at, seen, total from counted where seen > 0 order by at
