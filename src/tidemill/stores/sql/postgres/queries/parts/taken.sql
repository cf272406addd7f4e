-- taken: the ids of a batch that are already stored; `offset 0` makes each table a lookup per id.
taken as materialized (
  select x.id from item x
  where exists (select from tidemill.ready j where j.id = x.id offset 0)
     or exists (select from tidemill.scheduled j where j.id = x.id offset 0)
     or exists (select from tidemill.parked j where j.id = x.id offset 0)
     or exists (select from tidemill.running j where j.id = x.id offset 0)
     or exists (select from tidemill.history j where j.id = x.id offset 0)),
