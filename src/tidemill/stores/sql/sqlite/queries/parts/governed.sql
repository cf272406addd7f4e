-- governed: the conditions of a selection of ended jobs that one policy governs; GLOB is case-sensitive, LIKE is not.
-- takes: states texts, tasks texts, tenants texts, after_at timestamptz, after_id uuid, until_at timestamptz, until_id uuid
state in (select value from json_each(:states))
and exists (select 1 from json_each(:tasks) t where task glob replace(replace(t.value, '[', '[[]'), '?', '[?]')) -- when tasks
and tenant in (select value from json_each(:tenants)) -- when tenants
and (finished_at, id) > (:after_at, :after_id) -- when after_at
and (finished_at, id) <= (:until_at, :until_id) -- when until_at
and not exists (select 1 from others o where exists (select 1 from json_each(o.rule, '$.states') s where s.value = state) -- when exclude
                and (o.rule ->> '$.tenants' is null or exists ( -- when exclude
                  select 1 from json_each(o.rule, '$.tenants') n where n.value = tenant)) -- when exclude
                and (o.rule ->> '$.tasks' is null or exists ( -- when exclude
                  select 1 from json_each(o.rule, '$.tasks') t -- when exclude
                  where task glob replace(replace(t.value, '[', '[[]'), '?', '[?]')))) -- when exclude
