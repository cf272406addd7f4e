-- expand: the highest priority that the bearer of a key may give to a job; null for any.
-- serves: 6

alter table tidemill.keys add column max_priority smallint;
