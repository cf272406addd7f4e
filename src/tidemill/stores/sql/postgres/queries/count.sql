-- count: the number of matching jobs by state.
-- `unended` and `unheld` exclude a part of the view in the plan itself, so that the history is not searched for unfinished jobs.
-- `incomplete` makes the partial indexes of the history usable, whose condition a list of states does not prove.
-- An error group is an array of ids, found in the history alone: by a join, the newest jobs of all states would be read up to the group.
-- takes: tenant text, trouble text, states texts, task text, tasks texts, queues texts
-- takes: ids uuids, created_after timestamptz
-- takes: created_before timestamptz, correlation_id text, parent_id uuid, parent_ids uuids, reference_type text, reference_id text
-- takes: definition_id uuid, definition_version int4, schedule_id uuid, fire_at timestamptz, flow_id uuid
-- takes: tag text, metadata text, error_group text, most int8
-- gives: state text, jobs int8
select state, count(*) as jobs
from (select state -- when most
from tidemill.jobs
where true
  and tenant = :tenant -- when tenant
  and state = :trouble and state <> 'completed' -- when trouble
  and state = any(:states::text[]) -- when states
  and state not in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered') -- when unended
  and state not in ('claimed', 'running') -- when unheld
  and state <> 'completed' -- when incomplete
  and task = :task -- when task
  and task = any(:tasks::text[]) -- when tasks
  and queue = any(:queues::text[]) -- when queues
  and queue = any(:queues::text[]) -- when rare
  and id = any(:ids::uuid[]) -- when ids
  and created_at >= :created_after -- when created_after
  and created_at < :created_before -- when created_before
  and id in (select d.id from tidemill.details d where d.correlation_id = :correlation_id) -- when correlation_id
  and id in (select d.id from tidemill.details d where d.parent_id = :parent_id) -- when parent_id
  and id in (select d.id from tidemill.details d where d.parent_id = any(:parent_ids::uuid[])) -- when parent_ids
  and id in (select d.id from tidemill.details d where d.definition_id = :definition_id -- when definition_id
             and d.definition_version = :definition_version -- when definition_version
            ) -- when definition_id
  and id in (select d.id from tidemill.details d where d.schedule_id = :schedule_id -- when schedule_id
             and d.fire_at = :fire_at -- when fire_at
            ) -- when schedule_id
  and id in (select d.id from tidemill.details d where d.flow_id = :flow_id) -- when flow_id
  and finished_at is not null -- when error_group
  and id = any(array(select f.job_id from tidemill.failures f where f.fingerprint = :error_group)) -- when error_group
  and (id, finished_at) in (select f.job_id, f.at from tidemill.failures f where f.fingerprint = :error_group) -- when error_group
  and id in (select d.id from tidemill.details d -- when reference_type
             where d.reference_type = :reference_type and d.reference_id = :reference_id) -- when reference_type
  and id in (select d.id from tidemill.details d where d.tags @> jsonb_build_array(:tag::text)) -- when tag
  and id in (select d.id from tidemill.details d where not exists ( -- when metadata
               select from jsonb_each_text(:metadata::jsonb) f -- when metadata
               where case jsonb_typeof(d.metadata -> f.key) when 'null' then 'null' else d.metadata ->> f.key end -- when metadata
                     is distinct from f.value)) -- when metadata
limit :most) found -- when most
group by state
