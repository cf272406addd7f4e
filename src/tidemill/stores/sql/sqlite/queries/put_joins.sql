-- put_joins: writes counter rows; existing ones, which the caller has locked, are replaced.
-- items: id uuid, shard int2, remaining int4, spare int4, bad int4, total int4, required int4
insert into tidemill_joins(id, shard, remaining, spare, bad, total, required)
values (:id, :shard, :remaining, :spare, :bad, :total, :required)
on conflict (id, shard) do update set remaining = excluded.remaining, spare = excluded.spare, bad = excluded.bad,
  total = excluded.total, required = excluded.required
