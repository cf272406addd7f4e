-- join_ids: a page of the ids of joins of waiting jobs and live groups.
-- takes: after uuid, limit int4
-- gives: id uuid
select j.id from tidemill.joins j
where j.shard = 0
  and j.id > :after::uuid -- when after
  and (exists (select from tidemill.parked p where p.id = j.id and p.state || '' = 'waiting' offset 0)
       or exists (select from tidemill.flows f where f.id = j.id and f.ended_at is null offset 0))
order by j.id limit :limit
