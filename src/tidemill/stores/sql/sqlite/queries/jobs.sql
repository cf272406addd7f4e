-- jobs: one page of the matching jobs, in the order of their ids. Indexes: the primary keys, merged.
-- The plus keeps the order by id: by the index of the queue, all waiting jobs of a long queue would be sorted. In `rare` queues few jobs wait.
-- `incomplete` makes the partial indexes of the history usable, whose condition a list of states does not prove.
-- A text, an id suffix, arguments, an error, a worker or a run time is searched down to `floor` or up to `ceiling`, which `looked` finds.
-- `instr` decides about a whole part of the view if its state is constant; a list would be evaluated for every row.
-- Arguments and results of more than 8 KiB are left out, and `heavy` is the size of both: `get` reads those that fit.
-- takes: tenant text, trouble text, states texts, task text, tasks texts, queues texts
-- takes: ids uuids, created_after timestamptz
-- takes: created_before timestamptz, correlation_id text, parent_id uuid, parent_ids uuids, reference_type text, reference_id text
-- takes: definition_id uuid, definition_version int4, schedule_id uuid, fire_at timestamptz, flow_id uuid
-- takes: tag text, metadata text, error_group text
-- takes: text text, escaped text, digits text, id_suffix text, floor uuid, ceiling uuid
-- takes: arguments text, error text, workers uuids, took_over interval
-- takes: below uuid, above uuid, limit int4
select
  -- include: job_row(args=case when length(cast(args as blob)) <= 8192 then args end; result=case when length(cast(result as blob)) <= 8192 then result end)
  , case when length(cast(args as blob)) > 8192 or length(cast(result as blob)) > 8192
         then length(cast(args as blob)) + coalesce(length(cast(result as blob)), 0) else 0 end as heavy
-- gives: heavy int8
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
  and +queue in (select value from json_each(:queues)) -- when queues
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
  and id < :below -- when below
  and id > :above -- when above
  and id >= :floor -- when floor
  and id <= :ceiling -- when ceiling
  and lower(substr(hex(id), -length(:id_suffix))) = :id_suffix -- when id_suffix
  and worker in (select unhex(value) from json_each(:workers)) -- when workers
  and finished_at - started_at > :took_over -- when took_over
  and substr(substr(error, 1, instr(error, '",') - 1), -length(:error) - 1) in ('"' || :error, '.' || :error) -- when error
  and instr(args, '\u0000') = 0 -- when arguments
  and not exists ( -- when arguments
    select 1 from json_each(:arguments) f -- when arguments
    where case json_type(args, '$."' || f.key || '"') when 'text' then json_extract(args, '$."' || f.key || '"') -- when arguments
            when 'array' then null when 'object' then null else args -> ('$."' || f.key || '"') end -- when arguments
          is not f.value) -- when arguments
  and (instr(lower(task), :text) > 0 -- when text
       or instr(lower(error), :escaped) > 0 -- when text
       or instr(lower(args), :text) > 0 -- when in_args
       or instr(lower(args), :escaped) > 0 -- when in_args_escaped
       or instr(lower(hex(id)), :digits) > 0 -- when digits
       or detailed and exists (select 1 from tidemill_details d, json_each(d.tags) t -- when text
            where d.id = tidemill_jobs.id and instr(lower(t.value), :text) > 0)) -- when text
order by id desc -- when newest
order by id -- when oldest
limit :limit
