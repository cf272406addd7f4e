-- join_ids: a page of the ids of joins of waiting jobs and live groups.
-- takes: after uuid, limit int4
-- gives: id uuid
select j.id from tidemill_joins j
where j.shard = 0
  and j.id > :after -- when after
  and (exists (select 1 from tidemill_parked p where p.id = j.id and p.state = 'waiting')
       or exists (select 1 from tidemill_flows f where f.id = j.id and f.ended_at is null))
order by j.id limit :limit
