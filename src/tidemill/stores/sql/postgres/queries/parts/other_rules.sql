-- other_rules: the rules of policies that take precedence, with task patterns as LIKE patterns.
-- takes: exclude text
with others as materialized ( -- when exclude
  select r.states, r.tenants, case when r.tasks is not null then array( -- when exclude
    select replace(replace(replace(replace(t, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%') from unnest(r.tasks) t) end as tasks -- when exclude
  from jsonb_to_recordset(:exclude::text::jsonb) as r(states text[], tasks text[], tenants text[])) -- when exclude
