CREATE TABLE tidemill_alerts( id blob primary key not null, code text not null, subject text not null,
  severity text not null, text text not null, value real not null, threshold real not null, since_at integer,
  opened_at integer not null, seen_at integer not null, acknowledged_at integer, acknowledged_by text,
  recovered_at integer) strict;
CREATE TABLE tidemill_archive( id blob not null primary key, tenant text not null, task text not null,
  queue text not null, state text not null, token integer not null, created_at integer not null,
  finished_at integer not null, correlation_id text, parent_id blob, tier text not null, policy text not null,
  fingerprint text not null, archived_at integer not null, document text not null) strict;
CREATE TABLE tidemill_archive_entries( id blob not null, file blob not null, frame integer not null, primary key (id,
  file)) strict, without rowid;
CREATE TABLE tidemill_archive_files( id blob primary key not null, place text not null, path text not null,
  tier text not null, format text not null, rows integer not null, bytes integer not null, sha256 text not null,
  first_id blob not null, last_id blob not null, first_ended_at integer not null, last_ended_at integer not null,
  tenants text not null, tasks text not null, states text not null, frames text not null,
  archived_at integer not null) strict;
CREATE TABLE tidemill_archived_flows( id blob not null primary key, tenant text not null,
  kind text not null check (kind in ('flow', 'batch')), name text not null, key text,
  state text not null check (state in ('completed', 'failed', 'cancelled')), created_at integer not null,
  ended_at integer not null, tier text not null, policy text not null, summary text not null, document text not null,
  fingerprint text not null, archived_at integer not null) strict;
CREATE TABLE tidemill_audit( number integer primary key, at integer not null, tenant text not null, who text not null,
  action text not null, subject text not null, before text, after text, hash text not null) strict;
CREATE TABLE tidemill_blobs( job_id blob not null, number integer not null check (number >= 0),
  part integer not null check (part >= 0), place text, content text, archived integer not null default 0,
  created_at integer not null, primary key (job_id, number, part), check (coalesce(place, content) is not null)) strict;
CREATE TABLE tidemill_checkpoints( job_id blob not null, name text not null, value text, created_at integer not null,
  primary key (job_id, name)) strict;
CREATE TABLE tidemill_definition_versions( definition_id blob not null references tidemill_definitions(id),
  version integer not null, body text not null, created_at integer not null, created_by text,
  primary key (definition_id, version)) strict;
CREATE TABLE tidemill_definitions( id blob not null primary key, tenant text not null,
  key text not null check (length(key) <= 200), name text not null check (length(name) <= 200), task text not null,
  version integer not null, args text not null, settings text, notifications text, owner text, enabled integer not null,
  created_at integer not null, created_by text, updated_at integer not null, deleted_at integer) strict;
CREATE TABLE tidemill_dependencies( job_id blob not null, needs_id blob not null, created_at integer not null,
  condition text not null default 'success' check (condition in ('success', 'failure', 'not_success', 'end',
  'first_failure')), shard integer not null default 0, primary key (job_id, needs_id)) strict, without rowid;
CREATE TABLE tidemill_deploys( app text not null, release text not null, deployed_at integer not null, primary key (app,
  release)) strict, without rowid;
CREATE TABLE tidemill_depth_samples( queue text not null, at integer not null,
  unit text not null check (unit in ('minute', 'quarter', 'hour', 'day')),
  pending integer not null check (pending >= 0), scheduled integer not null check (scheduled >= 0),
  oldest integer not null check (oldest >= 0), primary key (queue, at, unit)) strict, without rowid;
CREATE TABLE tidemill_details( id blob not null primary key, tenant text not null, correlation_id text, parent_id blob,
  reference_type text, reference_id text, tags text, metadata text, headers text, options text, definition_id blob,
  definition_version integer, schedule_id blob, fire_at integer, flow_id blob, node text, position integer,
  group_id blob, group_shard integer, may_fail integer not null default 0) strict;
CREATE TABLE tidemill_ends( seq integer primary key autoincrement, at integer not null, tenant text not null,
  task text not null, queue text not null, worker blob, state text, execution text, run_bucket integer,
  wait_bucket integer, jobs integer not null, retried integer not null, attempts integer not null,
  most_attempts integer not null, run_time integer not null, longest integer not null, lag integer not null,
  longest_lag integer not null, last_at integer not null) strict;
CREATE TABLE tidemill_error_marks( tenant text not null, fingerprint text not null,
  status text not null check (status in ('open', 'muted', 'resolved')), at integer not null, marked_by text,
  primary key (tenant, fingerprint)) strict, without rowid;
CREATE TABLE tidemill_events( id blob primary key not null, tenant text not null, name text not null,
  match text not null default '', payload text, source text, created_at integer not null) strict;
CREATE TABLE tidemill_executions( job_id blob not null, number integer not null, attempt integer not null,
  state text not null check (state in ('succeeded', 'failed', 'timed_out', 'cancelled', 'crashed', 'released',
  'suspended', 'review')), worker blob, claimed_at integer, started_at integer, finished_at integer not null,
  reason text, error text, primary key (job_id, number)) strict;
CREATE TABLE tidemill_failures( seq integer primary key, at integer not null, first_at integer not null,
  tenant text not null, task text not null, fingerprint text not null, variant text not null, cause text not null,
  message text not null, job_id blob, jobs integer not null check (jobs > 0)) strict;
CREATE TABLE tidemill_fires( schedule_id blob not null, fire_at integer not null, scope_key text not null,
  tenant text not null, job_id blob, outcome text not null check (outcome in ('fired', 'skipped')), reason text,
  created_at integer not null, primary key (schedule_id, fire_at, scope_key),
  check ((outcome = 'fired') = (job_id is not null))) strict, without rowid;
CREATE TABLE tidemill_flows( id blob not null primary key, tenant text not null,
  kind text not null check (kind in ('flow', 'map', 'batch')), name text not null, key text,
  state text not null check (state in ('running', 'completed', 'failed', 'cancelled')), group_id blob,
  group_shard integer not null default 0, rules text not null, created_at integer not null, created_by text,
  expires_at integer, ended_at integer check ((state = 'running') = (ended_at is null)), cancel_reason text,
  stops integer not null default 0, round integer not null default 1, held integer not null default 0,
  correlation_id text) strict;
CREATE TABLE tidemill_history( id blob not null primary key, tenant text not null, queue text not null,
  task text not null, priority integer not null, attempt integer not null, max_attempts integer not null,
  crashes integer not null, token integer not null, run_at integer not null, created_at integer not null,
  expires_at integer, timeout integer, unique_key text, until_claimed integer not null default 0, limits text,
  detailed integer not null, reason text, state text not null check (state in ('completed', 'failed', 'timed_out',
  'cancelled', 'dead_lettered')), execution text, worker blob, claimed_at integer, started_at integer,
  finished_at integer not null, cancel_reason text, args text not null, progress text, result text, error text,
  tied integer not null default 0) strict;
CREATE TABLE tidemill_job_events( seq integer primary key autoincrement, subscription text not null, name text not null,
  at integer not null, job_id blob, task text, tenant text, state text, data text not null,
  attempts integer not null default 0, due_at integer not null, error text) strict;
CREATE TABLE tidemill_joins( id blob not null, shard integer not null, remaining integer not null,
  spare integer not null, bad integer not null default 0, total integer not null, required integer not null,
  primary key (id, shard)) strict, without rowid;
CREATE TABLE tidemill_keys( id text not null primary key, hash text not null, name text not null,
  role text not null check (role in ('viewer', 'operator', 'admin', 'super_admin')), tenant text not null,
  created_at integer not null, created_by text, expires_at integer, revoked_at integer, max_priority integer,
  grant_json text) strict;
CREATE TABLE tidemill_leases( name text not null primary key, holder blob, term integer not null, acquired_at integer,
  beat_at integer, expires_at integer, metadata text not null, check ((holder is null) = (expires_at is null))) strict;
CREATE TABLE tidemill_limits( name text not null primary key, kind text not null check (kind in ('concurrency', 'rate',
  'depth', 'breaker')), max integer not null, per integer, changed_at integer not null, burst integer, breaker text,
  pinned integer not null default 0, changed_by text) strict;
CREATE TABLE tidemill_logs( position integer primary key autoincrement, job_id blob not null, number integer not null,
  at integer not null, level text not null check (level in ('debug', 'info', 'warning', 'error')), stage text,
  message text not null, details text, duration integer) strict;
CREATE TABLE tidemill_meta( key text not null primary key, value text not null) strict;
CREATE TABLE tidemill_migrations( version integer primary key, name text not null, checksum text not null,
  applied_at integer not null default (strftime('%s', 'now') * 1000000)) strict;
CREATE TABLE tidemill_occurrences( schedule_id blob not null references tidemill_schedules(id) on delete cascade deferrable initially deferred,
  id blob not null, source text not null, occurred_at integer not null, outcome text not null default '',
  match text not null default '', payload text, primary key (schedule_id, id)) strict, without rowid;
CREATE TABLE tidemill_parked( id blob not null primary key, tenant text not null, queue text not null,
  task text not null, priority integer not null check (priority between -100 and 100), attempt integer not null,
  max_attempts integer not null, crashes integer not null, token integer not null, run_at integer not null,
  created_at integer not null, expires_at integer, timeout integer, unique_key text, until_claimed integer not null,
  limits text, detailed integer not null, reason text, state text not null check (state in ('waiting',
  'review_needed')), wakes integer not null, args text not null, result text, tied integer not null default 0) strict;
CREATE TABLE tidemill_pauses( kind text not null check (kind in ('queue', 'task', 'tenant', 'all')), name text not null,
  reason text, paused_by text, paused_at integer not null, primary key (kind, name)) strict;
CREATE TABLE tidemill_placements( tenant text not null primary key, shard text not null,
  state text not null check (state in ('placed', 'moving', 'draining')), target text, former text not null,
  epoch integer not null check (epoch > 0), changed_at integer not null) strict;
CREATE TABLE tidemill_ready( seq integer primary key autoincrement, id blob not null unique, tenant text not null,
  queue text not null, task text not null, priority integer not null check (priority between -100 and 100),
  attempt integer not null, max_attempts integer not null, crashes integer not null, token integer not null,
  run_at integer not null, created_at integer not null, expires_at integer, timeout integer, unique_key text,
  until_claimed integer not null, limits text, detailed integer not null, reason text, args text not null,
  gate text generated always as (coalesce(limits, '')) virtual, tied integer not null default 0) strict;
CREATE TABLE tidemill_releases( app text not null primary key, revision integer not null check (revision > 0),
  release text, deployed_at integer not null, seen_at integer not null, forced_at integer) strict;
CREATE TABLE tidemill_rollup_times( scope text not null check (scope in ('detail', 'total', 'ever')),
  at integer not null, unit text not null check (unit in ('minute', 'quarter', 'hour', 'day', 'ever')),
  tenant text not null, task text not null, queue text not null, state text not null,
  measure text not null check (measure in ('run', 'wait')), bucket integer not null, jobs integer not null,
  time integer not null, primary key (scope, at, unit, tenant, task, queue, state, measure, bucket)) strict,
  without rowid;
CREATE TABLE tidemill_rollups( scope text not null check (scope in ('detail', 'total', 'worker', 'ever', 'execution')),
  at integer not null, unit text not null check (unit in ('minute', 'quarter', 'hour', 'day', 'ever')),
  tenant text not null, task text not null, queue text not null, worker text not null, state text not null,
  jobs integer not null, retried integer not null, attempts integer not null, most_attempts integer not null,
  ran integer not null, run_time integer not null, longest integer not null, lag integer not null,
  longest_lag integer not null, last_at integer not null, primary key (scope, at, unit, tenant, task, queue, worker,
  state)) strict, without rowid;
CREATE TABLE tidemill_running( id blob not null primary key, tenant text not null, queue text not null,
  task text not null, priority integer not null, attempt integer not null check (attempt > 0),
  max_attempts integer not null, crashes integer not null, token integer not null check (token > 0),
  run_at integer not null, created_at integer not null, expires_at integer, timeout integer, unique_key text,
  limits text, detailed integer not null, state text not null check (state in ('claimed', 'running')),
  worker blob not null, claimed_at integer not null,
  started_at integer check ((state = 'running') = (started_at is not null)), cancel_reason text, args text not null,
  progress text, tied integer not null default 0) strict;
CREATE TABLE tidemill_scheduled( id blob not null primary key, tenant text not null, queue text not null,
  task text not null, priority integer not null check (priority between -100 and 100), attempt integer not null,
  max_attempts integer not null, crashes integer not null, token integer not null, run_at integer not null,
  created_at integer not null, expires_at integer, timeout integer, unique_key text, until_claimed integer not null,
  limits text, detailed integer not null, reason text, args text not null, tied integer not null default 0) strict;
CREATE TABLE "tidemill_schedules"( id blob not null primary key, tenant text not null,
  key text not null check (length(key) <= 200), definition_id blob references tidemill_definitions(id),
  task text not null, trigger text not null, timezone text not null, args text not null, options text,
  misfire text not null, overlap text not null, scope text not null check (scope in ('cluster', 'instance', 'process')),
  source text not null check (source in ('code', 'stored')), enabled integer not null, created_at integer not null,
  updated_at integer not null, last_fire_at integer, next_fire_at integer, revision integer not null default 1,
  since_at integer, calendar text, exclude text, note text) strict;
CREATE TABLE tidemill_sessions( id text not null primary key, who text not null, key_id text, grant_json text,
  issuer text, subject text, provider_session text, single_use text unique, created_at integer not null,
  expires_at integer not null, ended_at integer) strict;
CREATE TABLE tidemill_settings( key text not null primary key, value text not null, description text,
  updated_at integer not null, updated_by text) strict;
CREATE TABLE tidemill_signals( position integer primary key autoincrement, job_id blob not null, tenant text not null,
  name text not null, payload text, key text, source text, created_at integer not null,
  taken_at integer check (taken_at is null or key is not null)) strict;
CREATE TABLE tidemill_starts( number integer primary key, name text not null, begun_at integer not null,
  jobs integer not null) strict;
CREATE TABLE tidemill_streams( job_id blob not null, name text not null, number integer not null,
  n integer not null check (n > 0), data text not null, primary key (job_id, name, number, n)) strict, without rowid;
CREATE TABLE tidemill_tasks( name text not null primary key, description text, owner text, schema text, settings text,
  enabled integer not null default 1, seen_at integer not null, deployed_at integer) strict;
CREATE TABLE tidemill_trigger_sources( schedule_id blob not null references tidemill_schedules(id) on delete cascade deferrable initially deferred,
  tenant text not null, kind text not null check (kind in ('definition', 'event')), name text not null,
  primary key (schedule_id, kind, name)) strict, without rowid;
CREATE TABLE tidemill_uniques( tenant text not null, key text not null, job_id blob not null, live integer not null,
  window_ends_at integer, primary key (tenant, key)) strict, without rowid;
CREATE TABLE tidemill_unreachable_jobs( job_id blob not null primary key, reason text not null,
  created_at integer not null) strict;
CREATE TABLE tidemill_uses( name text not null primary key, used integer not null default 0 check (used >= 0),
  full_until_at integer, breaker text, changed_at integer not null) strict, without rowid;
CREATE TABLE tidemill_waits( job_id blob not null, name text not null, match text not null default '',
  event integer not null, tenant text not null, since_at integer not null, token integer not null, primary key (job_id,
  event, name, match)) strict, without rowid;
CREATE TABLE tidemill_worker_pauses( supervisor blob not null, place integer not null, primary key (supervisor,
  place)) strict, without rowid;
CREATE TABLE tidemill_worker_scales( supervisor blob not null primary key, number integer not null check (number > 0),
  processes integer not null check (processes > 0), concurrency integer not null check (concurrency >= 0),
  threads integer not null check (threads >= 0), children integer not null check (children >= 0)) strict, without rowid;
CREATE TABLE tidemill_workers( id blob not null primary key, name text not null, host text not null,
  pid integer not null, node text not null, version text not null, queues text not null, tasks text not null,
  concurrency integer not null, state text not null check (state in ('active', 'draining', 'stopped')),
  started_at integer not null, beat_at integer not null, expires_at integer not null, beats integer not null,
  schema_version integer not null default 0, supervisor blob, place integer not null default 0, report text) strict;
CREATE UNIQUE INDEX tidemill_alerts_open on tidemill_alerts(code, subject) where recovered_at is null;
CREATE INDEX tidemill_alerts_opened on tidemill_alerts(opened_at, id);
CREATE INDEX tidemill_archive_correlation on tidemill_archive(correlation_id, id) where correlation_id is not null;
CREATE INDEX tidemill_archive_ended on tidemill_archive(tier, finished_at, id);
CREATE INDEX tidemill_archive_files_ended on tidemill_archive_files(place, tier, first_ended_at, id);
CREATE INDEX tidemill_archive_parent on tidemill_archive(parent_id, id) where parent_id is not null;
CREATE INDEX tidemill_archive_task on tidemill_archive(task, id);
CREATE INDEX tidemill_archived_flows_ended on tidemill_archived_flows(tier, ended_at, id);
CREATE INDEX tidemill_blobs_created on tidemill_blobs(created_at) where part = 0 and not archived;
CREATE UNIQUE INDEX tidemill_definitions_key on tidemill_definitions(tenant, key) where deleted_at is null;
CREATE INDEX tidemill_definitions_task on tidemill_definitions(tenant, task);
CREATE INDEX tidemill_dependencies_needs on tidemill_dependencies(needs_id);
CREATE INDEX tidemill_depth_samples_at on tidemill_depth_samples(at, unit);
CREATE INDEX tidemill_details_correlation on tidemill_details(correlation_id, id) where correlation_id is not null;
CREATE INDEX tidemill_details_definition on tidemill_details(definition_id, id) where definition_id is not null;
CREATE INDEX tidemill_details_flow on tidemill_details(flow_id, id) where flow_id is not null;
CREATE INDEX tidemill_details_group on tidemill_details(group_id, position, id) where group_id is not null;
CREATE INDEX tidemill_details_parent on tidemill_details(parent_id, id) where parent_id is not null;
CREATE INDEX tidemill_details_reference on tidemill_details(reference_type, reference_id,
  id) where reference_type is not null;
CREATE INDEX tidemill_details_schedule on tidemill_details(schedule_id, id) where schedule_id is not null;
CREATE INDEX tidemill_details_tags on tidemill_details(tags, id) where tags is not null;
CREATE INDEX tidemill_events_created on tidemill_events(created_at, id);
CREATE INDEX tidemill_events_match on tidemill_events(tenant, name, match, created_at, id);
CREATE INDEX tidemill_events_name on tidemill_events(tenant, name, created_at, id);
CREATE INDEX tidemill_failures_at on tidemill_failures(at);
CREATE INDEX tidemill_failures_fingerprint on tidemill_failures(fingerprint, at);
CREATE INDEX tidemill_fires_jobs on tidemill_fires(schedule_id, fire_at, scope_key) where job_id is not null;
CREATE INDEX tidemill_fires_nodes on tidemill_fires(schedule_id, scope_key, fire_at) where scope_key <> '';
CREATE INDEX tidemill_fires_old on tidemill_fires(fire_at);
CREATE INDEX tidemill_flows_ended on tidemill_flows(ended_at, id) where ended_at is not null;
CREATE INDEX tidemill_flows_group on tidemill_flows(group_id) where group_id is not null;
CREATE UNIQUE INDEX tidemill_flows_key on tidemill_flows(tenant, name, key) where key is not null;
CREATE INDEX tidemill_flows_live on tidemill_flows(id) where ended_at is null;
CREATE INDEX tidemill_history_finished on tidemill_history(finished_at, id);
CREATE INDEX tidemill_history_task on tidemill_history(task, id);
CREATE INDEX tidemill_history_troubled on tidemill_history(id, state) where state <> 'completed';
CREATE INDEX tidemill_history_troubled_at on tidemill_history(state, finished_at, id) where state <> 'completed';
CREATE INDEX tidemill_job_events_delayed on tidemill_job_events(subscription, job_id, due_at) where attempts > 0;
CREATE INDEX tidemill_job_events_subscription on tidemill_job_events(subscription, seq);
CREATE INDEX tidemill_logs_at on tidemill_logs(at, position);
CREATE INDEX tidemill_logs_job on tidemill_logs(job_id);
CREATE INDEX tidemill_occurrences_id on tidemill_occurrences(id);
CREATE INDEX tidemill_parked_due on tidemill_parked(run_at, id) where wakes;
CREATE INDEX tidemill_parked_expires on tidemill_parked(expires_at,
  id) where expires_at is not null and state = 'waiting';
CREATE INDEX tidemill_parked_state on tidemill_parked(state, id);
CREATE INDEX tidemill_ready_claim on tidemill_ready(queue, tenant, priority desc, gate);
CREATE INDEX tidemill_ready_expires on tidemill_ready(expires_at, id) where expires_at is not null;
CREATE INDEX tidemill_rollup_times_tenant on tidemill_rollup_times(tenant, scope, at) where scope = 'detail';
CREATE INDEX tidemill_rollup_times_unit on tidemill_rollup_times(unit, at);
CREATE INDEX tidemill_rollups_tenant on tidemill_rollups(tenant, scope, at) where scope in ('detail', 'worker');
CREATE INDEX tidemill_rollups_unit on tidemill_rollups(unit, at);
CREATE INDEX tidemill_running_worker on tidemill_running(worker);
CREATE INDEX tidemill_scheduled_due on tidemill_scheduled(run_at, id);
CREATE INDEX tidemill_scheduled_expires on tidemill_scheduled(expires_at, id) where expires_at is not null;
CREATE INDEX tidemill_schedules_definition on tidemill_schedules(definition_id) where definition_id is not null;
CREATE INDEX tidemill_schedules_due on tidemill_schedules(next_fire_at, id) where enabled and scope = 'cluster';
CREATE UNIQUE INDEX tidemill_schedules_key on tidemill_schedules(tenant, key);
CREATE INDEX tidemill_sessions_expiry on tidemill_sessions(expires_at);
CREATE INDEX tidemill_signals_created on tidemill_signals(created_at) where taken_at is null;
CREATE UNIQUE INDEX tidemill_signals_key on tidemill_signals(job_id, key) where key is not null;
CREATE INDEX tidemill_signals_unread on tidemill_signals(job_id, position) where taken_at is null;
CREATE INDEX tidemill_starts_name on tidemill_starts(name, begun_at);
CREATE INDEX tidemill_trigger_sources_name on tidemill_trigger_sources(tenant, kind, name);
CREATE INDEX tidemill_uniques_job on tidemill_uniques(job_id);
CREATE INDEX tidemill_waits_event on tidemill_waits(tenant, name, match) where event;
CREATE INDEX tidemill_waits_question on tidemill_waits(tenant, job_id) where name >= 'ask/' and name < 'ask0';
CREATE VIEW tidemill_jobs as select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at,
  created_at, expires_at, timeout, unique_key, limits, detailed, reason, args, cast('pending' as text) as state,
  cast(null as text) as execution, cast(null as blob) as worker, cast(null as integer) as claimed_at,
  cast(null as integer) as started_at, cast(null as integer) as finished_at, cast(null as text) as cancel_reason,
  cast(null as text) as progress, cast(null as text) as result,
  cast(null as text) as error from tidemill_ready union all select id, tenant, queue, task, priority, attempt,
  max_attempts, crashes, token, run_at, created_at, expires_at, timeout, unique_key, limits, detailed, reason, args,
  cast('scheduled' as text), cast(null as text), cast(null as blob), cast(null as integer), cast(null as integer),
  cast(null as integer), cast(null as text), cast(null as text), cast(null as text),
  cast(null as text) from tidemill_scheduled union all select id, tenant, queue, task, priority, attempt, max_attempts,
  crashes, token, run_at, created_at, expires_at, timeout, unique_key, limits, detailed, reason, args, state,
  cast(null as text), cast(null as blob), cast(null as integer), cast(null as integer), cast(null as integer),
  cast(null as text), cast(null as text), result, cast(null as text) from tidemill_parked union all select id, tenant,
  queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout, unique_key,
  limits, detailed, cast(null as text), args, state, cast('running' as text), worker, claimed_at, started_at,
  cast(null as integer), cancel_reason, progress, cast(null as text),
  cast(null as text) from tidemill_running union all select id, tenant, queue, task, priority, attempt, max_attempts,
  crashes, token, run_at, created_at, expires_at, timeout, unique_key, limits, detailed, reason, args,
  cast('completed' as text), execution, worker, claimed_at, started_at, finished_at, cancel_reason, progress, result,
  error from tidemill_history where state = 'completed' union all select id, tenant, queue, task, priority, attempt,
  max_attempts, crashes, token, run_at, created_at, expires_at, timeout, unique_key, limits, detailed, reason, args,
  state, execution, worker, claimed_at, started_at, finished_at, cancel_reason, progress, result,
  error from tidemill_history indexed by tidemill_history_troubled where state <> 'completed';
CREATE TRIGGER tidemill_audit_no_delete before delete on tidemill_audit begin select raise(abort,
  'the audit is append-only'); end;
CREATE TRIGGER tidemill_audit_no_replace before insert on tidemill_audit when exists (select 1 from tidemill_audit where number = new.number) begin select raise(abort,
  'the audit is append-only'); end;
CREATE TRIGGER tidemill_audit_no_update before update on tidemill_audit begin select raise(abort,
  'the audit is append-only'); end;
