-- lock_joins: counter rows by id and shard, locked in this order. `pairs` is a JSON array of ids and shards.
-- The locked version is read, so changes that are computed from it cannot lose another one.
-- takes: pairs text
-- gives: id uuid, shard int2, remaining int4, spare int4, bad int4, total int4, required int4
select j.id, j.shard, j.remaining, j.spare, j.bad, j.total, j.required
from json_each(:pairs) p cross join tidemill_joins j
  on j.id = unhex(replace(json_extract(p.value, '$[0]'), '-', '')) and j.shard = json_extract(p.value, '$[1]')
