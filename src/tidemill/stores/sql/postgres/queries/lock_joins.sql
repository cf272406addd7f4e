-- lock_joins: counter rows by id and shard, locked in this order. `pairs` is a JSON array of ids and shards.
-- The locked version is read, so changes that are computed from it cannot lose another one.
-- takes: pairs text
-- gives: id uuid, shard int2, remaining int4, spare int4, bad int4, total int4, required int4
select j.id, j.shard, j.remaining, j.spare, j.bad, j.total, j.required
from (select (p ->> 0)::uuid as id, (p ->> 1)::smallint as shard
      from jsonb_array_elements(:pairs::text::jsonb) as p order by 1, 2) x
cross join lateral (select id, shard, remaining, spare, bad, total, required from tidemill.joins j where j.id = x.id and j.shard = x.shard for update) j
