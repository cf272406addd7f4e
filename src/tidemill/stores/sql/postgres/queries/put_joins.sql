-- put_joins: writes counter rows; existing ones, which the caller has locked, are replaced.
-- items: id uuid, shard int2, remaining int4, spare int4, bad int4, total int4, required int4
insert into tidemill.joins(id, shard, remaining, spare, bad, total, required)
select * from unnest(:id::uuid[], :shard::smallint[], :remaining::int[], :spare::int[], :bad::int[], :total::int[], :required::int[])
on conflict (id, shard) do update set remaining = excluded.remaining, spare = excluded.spare, bad = excluded.bad,
  total = excluded.total, required = excluded.required
