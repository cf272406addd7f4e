-- count: the number of matching jobs by state.
-- `incomplete` makes the partial indexes of the history usable, whose condition a list of states does not prove.
-- `instr` decides about a whole part of the view if its state is constant; a list would be evaluated for every row.
-- takes: tenant text, trouble text, states texts, task text, tasks texts, queues texts
-- takes: ids uuids, created_after timestamptz
-- takes: created_before timestamptz, correlation_id text, parent_id uuid, parent_ids uuids, reference_type text, reference_id text
-- takes: definition_id uuid, definition_version int4, schedule_id uuid, fire_at timestamptz, flow_id uuid
-- takes: tag text, metadata text, error_group text, most int8
-- gives: state text, jobs int8
select state, count(*) as jobs
from (select state -- when most
from tidemill_jobs
where true
  and tenant = :tenant -- when tenant
  and state = :trouble and state <> 'completed' -- when trouble
  and instr(:states, '"' || state || '"') > 0 -- when states
  and instr('completed failed timed_out cancelled dead_lettered', state) = 0 -- when unended
  and instr('claimed running', state) = 0 -- when unheld
  and state <> 'completed' -- when incomplete
  and task = :task -- when task
  and task in (select value from json_each(:tasks)) -- when tasks
  and queue in (select value from json_each(:queues)) -- when queues
  and queue in (select value from json_each(:queues)) -- when rare
  and id in (select unhex(value) from json_each(:ids)) -- when ids
  and created_at >= :created_after -- when created_after
  and created_at < :created_before -- when created_before
  and id in (select d.id from tidemill_details d where d.correlation_id = :correlation_id) -- when correlation_id
  and id in (select d.id from tidemill_details d where d.parent_id = :parent_id) -- when parent_id
  and id in (select d.id from tidemill_details d where d.parent_id in (select unhex(value) from json_each(:parent_ids))) -- when parent_ids
  and id in (select d.id from tidemill_details d where d.definition_id = :definition_id -- when definition_id
             and d.definition_version = :definition_version -- when definition_version
            ) -- when definition_id
  and id in (select d.id from tidemill_details d where d.schedule_id = :schedule_id -- when schedule_id
             and d.fire_at = :fire_at -- when fire_at
            ) -- when schedule_id
  and id in (select d.id from tidemill_details d where d.flow_id = :flow_id) -- when flow_id
  and (id, finished_at) in (select f.job_id, f.at from tidemill_failures f where f.fingerprint = :error_group) -- when error_group
  and id in (select d.id from tidemill_details d -- when reference_type
             where d.reference_type = :reference_type and d.reference_id = :reference_id) -- when reference_type
  and id in (select d.id from tidemill_details d, json_each(d.tags) t -- when tag
             where d.tags is not null and t.value = :tag) -- when tag
  and id in (select d.id from tidemill_details d where not exists ( -- when metadata
               select 1 from json_each(:metadata) f where not exists ( -- when metadata
                 select 1 from json_each(d.metadata) m -- when metadata
                 where m.key = f.key -- when metadata
                   and f.value = case when m.type in ('true', 'false', 'null') then m.type else cast(m.value as text) end))) -- when metadata
limit :most) found -- when most
group by state
