-- archived_flows_due: the ids of archived flows of a selection of a tier, the longest ended first. Index: archived_flows_ended.
-- takes: tier text, limit int4
-- gives: id uuid
-- include: other_rules
select id from (
  select f.*, f.name as task, f.ended_at as finished_at from tidemill.archived_flows f where f.tier = :tier) f
where
  -- include: governed
order by finished_at, id limit :limit
