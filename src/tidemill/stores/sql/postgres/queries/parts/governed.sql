-- governed: the conditions of a selection of ended jobs that one policy governs.
-- takes: states texts, tasks texts, tenants texts, after_at timestamptz, after_id uuid, until_at timestamptz, until_id uuid
state = any(:states::text[])
and task like any(array( -- when tasks
  select replace(replace(replace(replace(t, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%') from unnest(:tasks::text[]) t)) -- when tasks
and tenant = any(:tenants::text[]) -- when tenants
and (finished_at, id) > (:after_at::timestamptz, :after_id::uuid) -- when after_at
and (finished_at, id) <= (:until_at::timestamptz, :until_id::uuid) -- when until_at
and not exists (select 1 from others o where state = any(o.states) and (o.tenants is null or tenant = any(o.tenants)) -- when exclude
                and (o.tasks is null or task like any(o.tasks))) -- when exclude
