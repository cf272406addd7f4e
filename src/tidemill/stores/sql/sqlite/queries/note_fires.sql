-- note_fires: records fires; returns the keys of new ones. Index: fires' primary key.
-- New fires are found before they are written, because only a separate statement may return rows.
-- takes: now timestamptz
-- items: schedule_id uuid, fire_at timestamptz, scope_key text, tenant text, job_id uuid, reason text
-- gives: schedule_id uuid, fire_at timestamptz, scope_key text
delete from temp.tidemill_firing
;
insert into temp.tidemill_firing(schedule_id, fire_at, scope_key)
select :schedule_id, :fire_at, :scope_key
where not exists (
  select 1 from tidemill_fires where schedule_id = :schedule_id and fire_at = :fire_at and scope_key = :scope_key)
on conflict do nothing
;
insert into tidemill_fires(schedule_id, fire_at, scope_key, tenant, job_id, outcome, reason, created_at)
values (:schedule_id, :fire_at, :scope_key, :tenant, :job_id, case when :job_id is null then 'skipped' else 'fired' end, :reason,
        :now)
on conflict (schedule_id, fire_at, scope_key) do nothing
;
select schedule_id, fire_at, scope_key from temp.tidemill_firing
