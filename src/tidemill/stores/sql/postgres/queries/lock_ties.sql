-- lock_ties: locks held jobs in the order of their ids, then the counter rows of the tied ones by id and shard.
-- In a statement of its own: a later statement of the transaction sees every edge that was attached before, no edge is attached until it
-- ends, and updates of counter rows do not wait. Returns the held jobs, and whether their end is counted.
-- `defined` says whether a tied job belongs to a definition.
-- takes: ids uuids
-- gives: id uuid, tied bool, defined bool
with held as materialized (
  select r.id, r.tied, r.detailed from (select x.id from unnest(:ids::uuid[]) as x(id) order by x.id) x
  cross join lateral (select id, tied, detailed from tidemill.running r where r.id = x.id for update) r),
ending as materialized (select id from held where tied),
-- include: lock_counters
select h.id, h.tied,
       h.tied and h.detailed and coalesce(
         (select d.definition_id is not null from tidemill.details d where d.id = h.id), false) as defined
from held h where (select count(*) from locked) >= 0
