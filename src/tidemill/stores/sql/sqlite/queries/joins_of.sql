-- joins_of: the counter rows of these jobs and groups, by id and shard.
-- takes: ids uuids
-- gives: id uuid, shard int2, remaining int4, spare int4, bad int4, total int4, required int4
select id, shard, remaining, spare, bad, total, required from tidemill_joins where id in (select unhex(value) from json_each(:ids)) order by id, shard
