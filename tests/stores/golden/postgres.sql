create table tidemill.alerts(id uuid not null, code text collate "C" not null, subject text collate "C" not null,
  severity text not null, text text not null, value double precision not null, threshold double precision not null,
  since_at timestamptz, opened_at timestamptz not null, seen_at timestamptz not null, acknowledged_at timestamptz,
  acknowledged_by text, recovered_at timestamptz);
create table tidemill.archive(id uuid not null, tenant text collate "C" not null, task text collate "C" not null,
  queue text collate "C" not null, state text not null, token bigint not null, created_at timestamptz not null,
  finished_at timestamptz not null, correlation_id text, parent_id uuid, tier text not null, policy text not null,
  document text not null, fingerprint text not null, archived_at timestamptz not null);
create table tidemill.archive_entries(id uuid not null, file uuid not null, frame integer not null);
create table tidemill.archive_files(id uuid not null, place text collate "C" not null, path text not null,
  tier text not null, format text not null, rows bigint not null, bytes bigint not null, sha256 text not null,
  first_id uuid not null, last_id uuid not null, first_ended_at timestamptz not null,
  last_ended_at timestamptz not null, tenants text not null, tasks text not null, states text not null,
  frames text not null, archived_at timestamptz not null);
create table tidemill.archived_flows(id uuid not null, tenant text collate "C" not null, kind text not null,
  name text collate "C" not null, key text collate "C", state text not null, created_at timestamptz not null,
  ended_at timestamptz not null, tier text not null, policy text not null, summary text not null,
  document text not null, fingerprint text not null, archived_at timestamptz not null);
create table tidemill.audit(number bigint not null, at timestamptz not null, tenant text collate "C" not null,
  who text not null, action text not null, subject text not null, before text, after text, hash text not null);
create table tidemill.blobs(job_id uuid not null, number bigint not null, part integer not null, place text,
  content text, archived boolean not null default false, created_at timestamptz not null);
create table tidemill.checkpoints(job_id uuid not null, name text not null, value text,
  created_at timestamptz not null);
create table tidemill.definition_versions(definition_id uuid not null, version integer not null, body text not null,
  created_at timestamptz not null, created_by text);
create table tidemill.definitions(id uuid not null, tenant text collate "C" not null, key text not null,
  name text not null, task text collate "C" not null, version integer not null, args text not null, settings text,
  notifications text, owner text, enabled boolean not null, created_at timestamptz not null, created_by text,
  updated_at timestamptz not null, deleted_at timestamptz);
create table tidemill.dependencies(job_id uuid not null, needs_id uuid not null, created_at timestamptz not null,
  condition text not null default 'success'::text, shard smallint not null default 0);
create table tidemill.deploys(app text collate "C" not null, release text collate "C" not null,
  deployed_at timestamptz not null);
create table tidemill.depth_samples(queue text collate "C" not null, at timestamptz not null,
  unit text collate "C" not null, pending bigint not null, scheduled bigint not null, oldest bigint not null);
create table tidemill.details(id uuid not null, tenant text collate "C" not null, correlation_id text, parent_id uuid,
  reference_type text, reference_id text, tags jsonb, metadata jsonb, headers jsonb, options jsonb, definition_id uuid,
  definition_version integer, schedule_id uuid, fire_at timestamptz, flow_id uuid, node text, position integer,
  group_id uuid, group_shard smallint, may_fail boolean not null default false);
create table tidemill.ends(at timestamptz not null, tenant text collate "C" not null, task text collate "C" not null,
  queue text collate "C" not null, worker uuid, state text collate "C", execution text collate "C", run_bucket smallint,
  wait_bucket smallint, jobs bigint not null, retried bigint not null, attempts bigint not null,
  most_attempts integer not null, run_time bigint not null, longest bigint not null, lag bigint not null,
  longest_lag bigint not null, last_at timestamptz not null);
create table tidemill.error_marks(tenant text collate "C" not null, fingerprint text collate "C" not null,
  status text not null, at timestamptz not null, marked_by text);
create table tidemill.events(id uuid not null, tenant text collate "C" not null, name text collate "C" not null,
  match text collate "C" not null default ''::text, payload text, source text, created_at timestamptz not null);
create table tidemill.executions(job_id uuid not null, number bigint not null, attempt integer not null,
  state text not null, worker uuid, claimed_at timestamptz, started_at timestamptz, finished_at timestamptz not null,
  error text, reason text);
create table tidemill.failures(at timestamptz not null, first_at timestamptz not null, tenant text collate "C" not null,
  task text collate "C" not null, fingerprint text collate "C" not null, variant text collate "C" not null,
  cause text not null, message text not null, job_id uuid, jobs bigint not null);
create table tidemill.fires(schedule_id uuid not null, fire_at timestamptz not null, scope_key text not null,
  tenant text collate "C" not null, job_id uuid, outcome text not null, reason text, created_at timestamptz not null);
create table tidemill.flows(id uuid not null, tenant text collate "C" not null, kind text not null,
  name text collate "C" not null, key text collate "C", state text not null, group_id uuid,
  group_shard smallint not null default 0, rules jsonb not null, created_at timestamptz not null, created_by text,
  expires_at timestamptz, ended_at timestamptz, cancel_reason text, stops boolean not null default false,
  round integer not null default 1, held integer not null default 0, correlation_id text);
create table tidemill.history(id uuid not null, tenant text collate "C" not null, queue text collate "C" not null,
  task text collate "C" not null, priority smallint not null, attempt integer not null, max_attempts integer not null,
  crashes integer not null, token bigint not null, run_at timestamptz not null, created_at timestamptz not null,
  expires_at timestamptz, timeout interval, unique_key text, until_claimed boolean not null default false, limits text,
  detailed boolean not null, reason text, args text not null, state text not null, execution text, worker uuid,
  claimed_at timestamptz, started_at timestamptz, finished_at timestamptz not null, cancel_reason text, progress text,
  result text, error text, tied boolean not null default false);
create table tidemill.job_events(seq bigint not null generated always as identity,
  subscription text collate "C" not null, name text collate "C" not null, at timestamptz not null, job_id uuid,
  task text, tenant text, state text, data text not null, attempts integer not null default 0,
  due_at timestamptz not null, error text);
create table tidemill.joins(id uuid not null, shard smallint not null, remaining integer not null,
  spare integer not null, bad integer not null default 0, total integer not null, required integer not null);
create table tidemill.keys(id text not null, hash text not null, name text not null, role text not null,
  tenant text collate "C" not null, created_at timestamptz not null, created_by text, expires_at timestamptz,
  revoked_at timestamptz, max_priority smallint, grant_json text);
create table tidemill.leases(name text not null, holder uuid, term bigint not null, acquired_at timestamptz,
  beat_at timestamptz, expires_at timestamptz, metadata text not null);
create table tidemill.limits(name text not null, kind text not null, max bigint not null, per interval,
  changed_at timestamptz not null, burst bigint, breaker text, pinned boolean not null default false, changed_by text);
create table tidemill.logs(position bigint not null generated always as identity, job_id uuid not null,
  number bigint not null, at timestamptz not null, level text not null, stage text, message text not null, details text,
  duration interval);
create table tidemill.meta(key text not null, value text not null);
create table tidemill.migrations(version integer not null, name text not null, checksum text not null,
  applied_at timestamptz not null default now());
create table tidemill.occurrences(schedule_id uuid not null, id uuid not null, source text collate "C" not null,
  occurred_at timestamptz not null, outcome text not null default ''::text,
  match text collate "C" not null default ''::text, payload text);
create table tidemill.parked(id uuid not null, tenant text collate "C" not null, queue text collate "C" not null,
  task text collate "C" not null, priority smallint not null, attempt integer not null, max_attempts integer not null,
  crashes integer not null, token bigint not null, run_at timestamptz not null, created_at timestamptz not null,
  expires_at timestamptz, timeout interval, unique_key text, until_claimed boolean not null, limits text,
  detailed boolean not null, reason text, args text not null, state text not null, wakes boolean not null, result text,
  tied boolean not null default false);
create table tidemill.pauses(kind text collate "C" not null, name text collate "C" not null, reason text,
  paused_by text, paused_at timestamptz not null);
create table tidemill.placements(tenant text collate "C" not null, shard text not null, state text not null,
  target text, former text not null, epoch bigint not null, changed_at timestamptz not null);
create table tidemill.ready(id uuid not null, seq bigint not null generated always as identity,
  tenant text collate "C" not null, queue text collate "C" not null, task text collate "C" not null,
  priority smallint not null, attempt integer not null, max_attempts integer not null, crashes integer not null,
  token bigint not null, run_at timestamptz not null, created_at timestamptz not null, expires_at timestamptz,
  timeout interval, unique_key text, until_claimed boolean not null, limits text, detailed boolean not null,
  reason text, args text not null, gate text collate "C" not null default COALESCE(limits, ''::text),
  tied boolean not null default false);
create table tidemill.releases(app text not null, revision integer not null, release text,
  deployed_at timestamptz not null, seen_at timestamptz not null, forced_at timestamptz);
create table tidemill.rollup_times(scope text collate "C" not null, at timestamptz not null,
  unit text collate "C" not null, tenant text collate "C" not null, task text collate "C" not null,
  queue text collate "C" not null, state text collate "C" not null, measure text collate "C" not null,
  bucket smallint not null, jobs bigint not null, time bigint not null);
create table tidemill.rollups(scope text collate "C" not null, at timestamptz not null, unit text collate "C" not null,
  tenant text collate "C" not null, task text collate "C" not null, queue text collate "C" not null,
  worker text collate "C" not null, state text collate "C" not null, jobs bigint not null, retried bigint not null,
  attempts bigint not null, most_attempts integer not null, ran bigint not null, run_time bigint not null,
  longest bigint not null, lag bigint not null, longest_lag bigint not null, last_at timestamptz not null);
create table tidemill.running(id uuid not null, tenant text collate "C" not null, queue text collate "C" not null,
  task text collate "C" not null, priority smallint not null, attempt integer not null, max_attempts integer not null,
  crashes integer not null, token bigint not null, run_at timestamptz not null, created_at timestamptz not null,
  expires_at timestamptz, timeout interval, unique_key text, limits text, detailed boolean not null, args text not null,
  state text not null, worker uuid not null, claimed_at timestamptz not null, started_at timestamptz,
  cancel_reason text, progress text, tied boolean not null default false);
create table tidemill.scheduled(id uuid not null, tenant text collate "C" not null, queue text collate "C" not null,
  task text collate "C" not null, priority smallint not null, attempt integer not null, max_attempts integer not null,
  crashes integer not null, token bigint not null, run_at timestamptz not null, created_at timestamptz not null,
  expires_at timestamptz, timeout interval, unique_key text, until_claimed boolean not null, limits text,
  detailed boolean not null, reason text, args text not null, tied boolean not null default false);
create table tidemill.schedules(id uuid not null, tenant text collate "C" not null, key text not null,
  definition_id uuid, task text collate "C" not null, trigger text not null, timezone text not null, args text not null,
  options text, misfire text not null, overlap text not null, scope text not null, source text not null,
  enabled boolean not null, created_at timestamptz not null, updated_at timestamptz not null, last_fire_at timestamptz,
  next_fire_at timestamptz, revision integer not null default 1, since_at timestamptz, calendar text, exclude text,
  note text);
create table tidemill.sessions(id text not null, who text not null, key_id text, grant_json text, issuer text,
  subject text, provider_session text, single_use text, created_at timestamptz not null,
  expires_at timestamptz not null, ended_at timestamptz);
create table tidemill.settings(key text collate "C" not null, value text not null, description text,
  updated_at timestamptz not null, updated_by text);
create table tidemill.signals(position bigint not null generated always as identity, job_id uuid not null,
  tenant text collate "C" not null, name text collate "C" not null, payload text, key text collate "C", source text,
  created_at timestamptz not null, taken_at timestamptz);
create table tidemill.starts(number bigint not null generated always as identity, name text collate "C" not null,
  begun_at timestamptz not null, jobs integer not null);
create table tidemill.streams(job_id uuid not null, name text collate "C" not null, number bigint not null,
  n bigint not null, data text not null);
create table tidemill.tasks(name text collate "C" not null, description text, owner text, schema text, settings text,
  enabled boolean not null default true, seen_at timestamptz not null, deployed_at timestamptz);
create table tidemill.trigger_sources(schedule_id uuid not null, tenant text collate "C" not null,
  kind text collate "C" not null, name text collate "C" not null);
create table tidemill.uniques(tenant text collate "C" not null, key text collate "C" not null, job_id uuid not null,
  live boolean not null, window_ends_at timestamptz);
create table tidemill.unreachable_jobs(job_id uuid not null, reason text not null, created_at timestamptz not null);
create table tidemill.uses(name text collate "C" not null, used integer not null default 0, full_until_at timestamptz,
  breaker text, changed_at timestamptz not null);
create table tidemill.waits(job_id uuid not null, name text collate "C" not null,
  match text collate "C" not null default ''::text, event boolean not null, tenant text collate "C" not null,
  since_at timestamptz not null, token bigint not null);
create table tidemill.worker_pauses(supervisor uuid not null, place integer not null);
create table tidemill.worker_scales(supervisor uuid not null, number bigint not null, processes integer not null,
  concurrency integer not null, threads integer not null, children integer not null);
create table tidemill.workers(id uuid not null, name text not null, host text not null, pid bigint not null,
  node text not null, version text not null, queues text not null, tasks text not null, concurrency integer not null,
  state text not null, started_at timestamptz not null, beat_at timestamptz not null, expires_at timestamptz not null,
  beats bigint not null, schema_version integer not null default 0, supervisor uuid, place integer not null default 0,
  report text);
alter table tidemill.archive partition by RANGE (id);
create table tidemill.archive_before partition;
create table tidemill.archive_default partition;
alter table tidemill.alerts add PRIMARY KEY (id);
alter table tidemill.archive add PRIMARY KEY (id);
alter table tidemill.archive_entries add PRIMARY KEY (id, file);
alter table tidemill.archive_files add PRIMARY KEY (id);
alter table tidemill.archived_flows add CHECK ((kind = ANY (ARRAY['flow'::text, 'batch'::text])));
alter table tidemill.archived_flows add CHECK ((state = ANY (ARRAY['completed'::text, 'failed'::text,
  'cancelled'::text])));
alter table tidemill.archived_flows add PRIMARY KEY (id);
alter table tidemill.audit add PRIMARY KEY (number);
alter table tidemill.blobs add CHECK ((COALESCE(place, content) IS NOT NULL));
alter table tidemill.blobs add CHECK ((number >= 0));
alter table tidemill.blobs add CHECK ((part >= 0));
alter table tidemill.blobs add PRIMARY KEY (job_id, number, part);
alter table tidemill.checkpoints add PRIMARY KEY (job_id, name);
alter table tidemill.definition_versions add FOREIGN KEY (definition_id) REFERENCES tidemill.definitions(id);
alter table tidemill.definition_versions add PRIMARY KEY (definition_id, version);
alter table tidemill.definitions add CHECK ((length(key) <= 200));
alter table tidemill.definitions add CHECK ((length(name) <= 200));
alter table tidemill.definitions add PRIMARY KEY (id);
alter table tidemill.dependencies add CHECK ((condition = ANY (ARRAY['success'::text, 'failure'::text,
  'not_success'::text, 'end'::text, 'first_failure'::text])));
alter table tidemill.dependencies add PRIMARY KEY (job_id, needs_id);
alter table tidemill.deploys add PRIMARY KEY (app, release);
alter table tidemill.depth_samples add CHECK ((oldest >= 0));
alter table tidemill.depth_samples add CHECK ((pending >= 0));
alter table tidemill.depth_samples add CHECK ((scheduled >= 0));
alter table tidemill.depth_samples add CHECK ((unit = ANY (ARRAY['minute'::text, 'quarter'::text, 'hour'::text,
  'day'::text])));
alter table tidemill.depth_samples add PRIMARY KEY (queue, at, unit);
alter table tidemill.details add PRIMARY KEY (id);
alter table tidemill.error_marks add CHECK ((status = ANY (ARRAY['open'::text, 'muted'::text, 'resolved'::text])));
alter table tidemill.error_marks add PRIMARY KEY (tenant, fingerprint);
alter table tidemill.events add PRIMARY KEY (id);
alter table tidemill.executions add CHECK ((state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'timed_out'::text,
  'cancelled'::text, 'crashed'::text, 'released'::text, 'suspended'::text, 'review'::text])));
alter table tidemill.executions add PRIMARY KEY (job_id, number);
alter table tidemill.failures add CHECK ((jobs > 0));
alter table tidemill.fires add CHECK (((outcome = 'fired'::text) = (job_id IS NOT NULL)));
alter table tidemill.fires add CHECK ((outcome = ANY (ARRAY['fired'::text, 'skipped'::text])));
alter table tidemill.fires add PRIMARY KEY (schedule_id, fire_at, scope_key);
alter table tidemill.flows add CHECK (((state = 'running'::text) = (ended_at IS NULL)));
alter table tidemill.flows add CHECK ((kind = ANY (ARRAY['flow'::text, 'map'::text, 'batch'::text])));
alter table tidemill.flows add CHECK ((state = ANY (ARRAY['running'::text, 'completed'::text, 'failed'::text,
  'cancelled'::text])));
alter table tidemill.flows add PRIMARY KEY (id);
alter table tidemill.history add CHECK ((state = ANY (ARRAY['completed'::text, 'failed'::text, 'timed_out'::text,
  'cancelled'::text, 'dead_lettered'::text])));
alter table tidemill.history add PRIMARY KEY (id);
alter table tidemill.job_events add PRIMARY KEY (seq);
alter table tidemill.joins add PRIMARY KEY (id, shard);
alter table tidemill.keys add CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'admin'::text,
  'super_admin'::text])));
alter table tidemill.keys add PRIMARY KEY (id);
alter table tidemill.leases add CHECK (((holder IS NULL) = (expires_at IS NULL)));
alter table tidemill.leases add PRIMARY KEY (name);
alter table tidemill.limits add CHECK ((kind = ANY (ARRAY['concurrency'::text, 'rate'::text, 'depth'::text,
  'breaker'::text])));
alter table tidemill.limits add PRIMARY KEY (name);
alter table tidemill.logs add CHECK ((level = ANY (ARRAY['debug'::text, 'info'::text, 'warning'::text,
  'error'::text])));
alter table tidemill.logs add PRIMARY KEY (job_id, "position");
alter table tidemill.meta add PRIMARY KEY (key);
alter table tidemill.migrations add PRIMARY KEY (version);
alter table tidemill.occurrences add FOREIGN KEY (schedule_id) REFERENCES tidemill.schedules(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
alter table tidemill.occurrences add PRIMARY KEY (schedule_id, id);
alter table tidemill.parked add CHECK (((priority >= '-100'::integer) AND (priority <= 100)));
alter table tidemill.parked add CHECK ((state = ANY (ARRAY['waiting'::text, 'review_needed'::text])));
alter table tidemill.parked add PRIMARY KEY (id);
alter table tidemill.pauses add CHECK ((kind = ANY (ARRAY['queue'::text, 'task'::text, 'tenant'::text, 'all'::text])));
alter table tidemill.pauses add PRIMARY KEY (kind, name);
alter table tidemill.placements add CHECK ((epoch > 0));
alter table tidemill.placements add CHECK ((state = ANY (ARRAY['placed'::text, 'moving'::text, 'draining'::text])));
alter table tidemill.placements add PRIMARY KEY (tenant);
alter table tidemill.ready add CHECK (((priority >= '-100'::integer) AND (priority <= 100)));
alter table tidemill.ready add PRIMARY KEY (id);
alter table tidemill.releases add CHECK ((revision > 0));
alter table tidemill.releases add PRIMARY KEY (app);
alter table tidemill.rollup_times add CHECK ((measure = ANY (ARRAY['run'::text, 'wait'::text])));
alter table tidemill.rollup_times add CHECK ((scope = ANY (ARRAY['detail'::text, 'total'::text, 'ever'::text])));
alter table tidemill.rollup_times add CHECK ((unit = ANY (ARRAY['minute'::text, 'quarter'::text, 'hour'::text,
  'day'::text, 'ever'::text])));
alter table tidemill.rollup_times add PRIMARY KEY (scope, at, unit, tenant, task, queue, state, measure, bucket);
alter table tidemill.rollups add CHECK ((scope = ANY (ARRAY['detail'::text, 'total'::text, 'worker'::text, 'ever'::text,
  'execution'::text])));
alter table tidemill.rollups add CHECK ((unit = ANY (ARRAY['minute'::text, 'quarter'::text, 'hour'::text, 'day'::text,
  'ever'::text])));
alter table tidemill.rollups add PRIMARY KEY (scope, at, unit, tenant, task, queue, worker, state);
alter table tidemill.running add CHECK (((state = 'running'::text) = (started_at IS NOT NULL)));
alter table tidemill.running add CHECK ((attempt > 0));
alter table tidemill.running add CHECK ((state = ANY (ARRAY['claimed'::text, 'running'::text])));
alter table tidemill.running add CHECK ((token > 0));
alter table tidemill.running add PRIMARY KEY (id);
alter table tidemill.scheduled add CHECK (((priority >= '-100'::integer) AND (priority <= 100)));
alter table tidemill.scheduled add PRIMARY KEY (id);
alter table tidemill.schedules add CHECK ((length(key) <= 200));
alter table tidemill.schedules add CHECK ((scope = ANY (ARRAY['cluster'::text, 'instance'::text, 'process'::text])));
alter table tidemill.schedules add CHECK ((source = ANY (ARRAY['code'::text, 'stored'::text])));
alter table tidemill.schedules add FOREIGN KEY (definition_id) REFERENCES tidemill.definitions(id);
alter table tidemill.schedules add PRIMARY KEY (id);
alter table tidemill.sessions add PRIMARY KEY (id);
alter table tidemill.sessions add UNIQUE (single_use);
alter table tidemill.settings add PRIMARY KEY (key);
alter table tidemill.signals add CHECK (((taken_at IS NULL) OR (key IS NOT NULL)));
alter table tidemill.signals add PRIMARY KEY (job_id, "position");
alter table tidemill.starts add PRIMARY KEY (number);
alter table tidemill.streams add CHECK ((n > 0));
alter table tidemill.streams add PRIMARY KEY (job_id, name, number, n);
alter table tidemill.tasks add PRIMARY KEY (name);
alter table tidemill.trigger_sources add CHECK ((kind = ANY (ARRAY['definition'::text, 'event'::text])));
alter table tidemill.trigger_sources add FOREIGN KEY (schedule_id) REFERENCES tidemill.schedules(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
alter table tidemill.trigger_sources add PRIMARY KEY (schedule_id, kind, name);
alter table tidemill.uniques add PRIMARY KEY (tenant, key);
alter table tidemill.unreachable_jobs add PRIMARY KEY (job_id);
alter table tidemill.uses add CHECK ((used >= 0));
alter table tidemill.uses add PRIMARY KEY (name);
alter table tidemill.waits add PRIMARY KEY (job_id, event, name, match);
alter table tidemill.worker_pauses add PRIMARY KEY (supervisor, place);
alter table tidemill.worker_scales add CHECK ((children >= 0));
alter table tidemill.worker_scales add CHECK ((concurrency >= 0));
alter table tidemill.worker_scales add CHECK ((number > 0));
alter table tidemill.worker_scales add CHECK ((processes > 0));
alter table tidemill.worker_scales add CHECK ((threads >= 0));
alter table tidemill.worker_scales add PRIMARY KEY (supervisor);
alter table tidemill.workers add CHECK ((state = ANY (ARRAY['active'::text, 'draining'::text, 'stopped'::text])));
alter table tidemill.workers add PRIMARY KEY (id);
CREATE INDEX alerts_opened ON tidemill.alerts USING btree (opened_at, id);
CREATE INDEX archive_correlation ON ONLY tidemill.archive USING btree (correlation_id,
  id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX archive_ended ON ONLY tidemill.archive USING btree (tier, finished_at);
CREATE INDEX archive_files_ended ON tidemill.archive_files USING btree (place, tier, first_ended_at, id);
CREATE INDEX archive_parent ON ONLY tidemill.archive USING btree (parent_id, id) WHERE (parent_id IS NOT NULL);
CREATE INDEX archive_task ON ONLY tidemill.archive USING btree (task, id);
CREATE INDEX archived_flows_ended ON tidemill.archived_flows USING btree (tier, ended_at, id);
CREATE INDEX blobs_created ON tidemill.blobs USING btree (created_at) WHERE ((part = 0) AND (NOT archived));
CREATE INDEX definitions_task ON tidemill.definitions USING btree (tenant, task);
CREATE INDEX dependencies_needs ON tidemill.dependencies USING btree (needs_id);
CREATE INDEX depth_samples_at ON tidemill.depth_samples USING btree (at, unit);
CREATE INDEX details_correlation ON tidemill.details USING btree (correlation_id,
  id) WHERE (correlation_id IS NOT NULL);
CREATE INDEX details_definition ON tidemill.details USING btree (definition_id, id) WHERE (definition_id IS NOT NULL);
CREATE INDEX details_flow ON tidemill.details USING btree (flow_id, id) WHERE (flow_id IS NOT NULL);
CREATE INDEX details_group ON tidemill.details USING btree (group_id, "position", id) WHERE (group_id IS NOT NULL);
CREATE INDEX details_parent ON tidemill.details USING btree (parent_id, id) WHERE (parent_id IS NOT NULL);
CREATE INDEX details_reference ON tidemill.details USING btree (reference_type, reference_id,
  id) WHERE (reference_type IS NOT NULL);
CREATE INDEX details_schedule ON tidemill.details USING btree (schedule_id, id) WHERE (schedule_id IS NOT NULL);
CREATE INDEX details_tags ON tidemill.details USING gin (tags) WHERE (tags IS NOT NULL);
CREATE INDEX events_created ON tidemill.events USING btree (created_at, id);
CREATE INDEX events_match ON tidemill.events USING btree (tenant, name, match, created_at, id);
CREATE INDEX events_name ON tidemill.events USING btree (tenant, name, created_at, id);
CREATE INDEX failures_at ON tidemill.failures USING btree (at);
CREATE INDEX failures_fingerprint ON tidemill.failures USING btree (fingerprint, at);
CREATE INDEX fires_jobs ON tidemill.fires USING btree (schedule_id, fire_at,
  scope_key COLLATE "C") WHERE (job_id IS NOT NULL);
CREATE INDEX fires_nodes ON tidemill.fires USING btree (schedule_id, scope_key, fire_at) WHERE (scope_key <> ''::text);
CREATE INDEX fires_old ON tidemill.fires USING btree (fire_at);
CREATE INDEX flows_ended ON tidemill.flows USING btree (ended_at, id) WHERE (ended_at IS NOT NULL);
CREATE INDEX flows_group ON tidemill.flows USING btree (group_id) WHERE (group_id IS NOT NULL);
CREATE INDEX flows_live ON tidemill.flows USING btree (id) WHERE (ended_at IS NULL);
CREATE INDEX history_finished ON tidemill.history USING btree (finished_at, id);
CREATE INDEX history_task ON tidemill.history USING btree (task, id);
CREATE INDEX history_troubled ON tidemill.history USING btree (state, id) WHERE (state <> 'completed'::text);
CREATE INDEX history_troubled_at ON tidemill.history USING btree (state, finished_at,
  id) WHERE (state <> 'completed'::text);
CREATE INDEX job_events_delayed ON tidemill.job_events USING btree (subscription, job_id, due_at) WHERE (attempts > 0);
CREATE INDEX job_events_subscription ON tidemill.job_events USING btree (subscription, seq);
CREATE INDEX logs_at ON tidemill.logs USING btree (at, "position");
CREATE INDEX occurrences_id ON tidemill.occurrences USING btree (id);
CREATE INDEX parked_due ON tidemill.parked USING btree (run_at, id) WHERE wakes;
CREATE INDEX parked_expires ON tidemill.parked USING btree (expires_at,
  id) WHERE ((expires_at IS NOT NULL) AND (state = 'waiting'::text));
CREATE INDEX parked_state ON tidemill.parked USING btree (state, id);
CREATE INDEX ready_claim ON tidemill.ready USING btree (queue, tenant, priority DESC, gate, seq);
CREATE INDEX ready_expires ON tidemill.ready USING btree (expires_at, id) WHERE (expires_at IS NOT NULL);
CREATE INDEX rollup_times_tenant ON tidemill.rollup_times USING btree (tenant, scope,
  at) WHERE (scope = 'detail'::text);
CREATE INDEX rollup_times_unit ON tidemill.rollup_times USING btree (unit, at);
CREATE INDEX rollups_tenant ON tidemill.rollups USING btree (tenant, scope,
  at) WHERE (scope = ANY (ARRAY['detail'::text, 'worker'::text]));
CREATE INDEX rollups_unit ON tidemill.rollups USING btree (unit, at);
CREATE INDEX running_worker ON tidemill.running USING btree (worker);
CREATE INDEX scheduled_due ON tidemill.scheduled USING btree (run_at, id);
CREATE INDEX scheduled_expires ON tidemill.scheduled USING btree (expires_at, id) WHERE (expires_at IS NOT NULL);
CREATE INDEX schedules_definition ON tidemill.schedules USING btree (definition_id) WHERE (definition_id IS NOT NULL);
CREATE INDEX schedules_due ON tidemill.schedules USING btree (next_fire_at,
  id) WHERE (enabled AND (scope = 'cluster'::text));
CREATE INDEX sessions_expiry ON tidemill.sessions USING btree (expires_at);
CREATE INDEX signals_created ON tidemill.signals USING btree (created_at) WHERE (taken_at IS NULL);
CREATE INDEX signals_unread ON tidemill.signals USING btree (job_id, "position") WHERE (taken_at IS NULL);
CREATE INDEX starts_name ON tidemill.starts USING btree (name, begun_at);
CREATE INDEX trigger_sources_name ON tidemill.trigger_sources USING btree (tenant, kind, name);
CREATE INDEX uniques_job ON tidemill.uniques USING btree (job_id);
CREATE INDEX waits_event ON tidemill.waits USING btree (tenant, name, match) WHERE event;
CREATE INDEX waits_question ON tidemill.waits USING btree (tenant,
  job_id) WHERE ((name >= 'ask/'::text) AND (name < 'ask0'::text));
CREATE UNIQUE INDEX alerts_open ON tidemill.alerts USING btree (code, subject) WHERE (recovered_at IS NULL);
CREATE UNIQUE INDEX definitions_key ON tidemill.definitions USING btree (tenant, key) WHERE (deleted_at IS NULL);
CREATE UNIQUE INDEX flows_key ON tidemill.flows USING btree (tenant, name, key) WHERE (key IS NOT NULL);
CREATE UNIQUE INDEX schedules_key ON tidemill.schedules USING btree (tenant, key);
CREATE UNIQUE INDEX signals_key ON tidemill.signals USING btree (job_id, key) WHERE (key IS NOT NULL);
alter table tidemill.ends set (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000,
  autovacuum_vacuum_cost_delay=0, vacuum_truncate=off);
alter table tidemill.history set (autovacuum_vacuum_insert_scale_factor=0.1);
alter table tidemill.joins set (fillfactor=50);
alter table tidemill.leases set (fillfactor=50);
alter table tidemill.limits set (fillfactor=20);
alter table tidemill.ready set (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000,
  autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=100000,
  vacuum_truncate=off);
alter table tidemill.rollup_times set (fillfactor=70);
alter table tidemill.rollups set (fillfactor=70);
alter table tidemill.running set (fillfactor=70, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000,
  autovacuum_vacuum_cost_delay=0, vacuum_truncate=off);
alter table tidemill.scheduled set (vacuum_truncate=off);
alter table tidemill.starts set (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000,
  autovacuum_vacuum_cost_delay=0);
alter table tidemill.uses set (fillfactor=30, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000,
  autovacuum_vacuum_cost_delay=0);
alter table tidemill.workers set (fillfactor=50);
create view tidemill.jobs as SELECT ready.id, ready.tenant, ready.queue, ready.task, ready.priority, ready.attempt,
  ready.max_attempts, ready.crashes, ready.token, ready.run_at, ready.created_at, ready.expires_at, ready.timeout,
  ready.unique_key, ready.limits, ready.detailed, ready.reason, ready.args, 'pending'::text AS state,
  NULL::text AS execution, NULL::uuid AS worker, NULL::timestamptz AS claimed_at, NULL::timestamptz AS started_at,
  NULL::timestamptz AS finished_at, NULL::text AS cancel_reason, NULL::text AS progress, NULL::text AS result,
  NULL::text AS error FROM tidemill.ready UNION ALL SELECT scheduled.id, scheduled.tenant, scheduled.queue,
  scheduled.task, scheduled.priority, scheduled.attempt, scheduled.max_attempts, scheduled.crashes, scheduled.token,
  scheduled.run_at, scheduled.created_at, scheduled.expires_at, scheduled.timeout, scheduled.unique_key,
  scheduled.limits, scheduled.detailed, scheduled.reason, scheduled.args, 'scheduled'::text AS state,
  NULL::text AS execution, NULL::uuid AS worker, NULL::timestamptz AS claimed_at, NULL::timestamptz AS started_at,
  NULL::timestamptz AS finished_at, NULL::text AS cancel_reason, NULL::text AS progress, NULL::text AS result,
  NULL::text AS error FROM tidemill.scheduled UNION ALL SELECT parked.id, parked.tenant, parked.queue, parked.task,
  parked.priority, parked.attempt, parked.max_attempts, parked.crashes, parked.token, parked.run_at, parked.created_at,
  parked.expires_at, parked.timeout, parked.unique_key, parked.limits, parked.detailed, parked.reason, parked.args,
  parked.state, NULL::text AS execution, NULL::uuid AS worker, NULL::timestamptz AS claimed_at,
  NULL::timestamptz AS started_at, NULL::timestamptz AS finished_at, NULL::text AS cancel_reason,
  NULL::text AS progress, parked.result, NULL::text AS error FROM tidemill.parked UNION ALL SELECT running.id,
  running.tenant, running.queue, running.task, running.priority, running.attempt, running.max_attempts, running.crashes,
  running.token, running.run_at, running.created_at, running.expires_at, running.timeout, running.unique_key,
  running.limits, running.detailed, NULL::text AS reason, running.args, running.state, 'running'::text AS execution,
  running.worker, running.claimed_at, running.started_at, NULL::timestamptz AS finished_at, running.cancel_reason,
  running.progress, NULL::text AS result, NULL::text AS error FROM tidemill.running UNION ALL SELECT history.id,
  history.tenant, history.queue, history.task, history.priority, history.attempt, history.max_attempts, history.crashes,
  history.token, history.run_at, history.created_at, history.expires_at, history.timeout, history.unique_key,
  history.limits, history.detailed, history.reason, history.args, history.state, history.execution, history.worker,
  history.claimed_at, history.started_at, history.finished_at, history.cancel_reason, history.progress, history.result,
  history.error FROM tidemill.history;
CREATE OR REPLACE FUNCTION tidemill.drop_archive_months(only_tier text,
  until_at timestamptz) RETURNS bigint LANGUAGE plpgsql AS $function$ declare part record; kept boolean; counted bigint; total bigint := 0; begin perform pg_advisory_xact_lock(hashtext('tidemill.archive')); perform set_config('lock_timeout',
  '200ms',
  true); for part in select c.relname as name from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid where i.inhparent = 'tidemill.archive'::regclass and c.relname <> 'archive_default' and (regexp_match(pg_get_expr(c.relpartbound,
  c.oid),
  'TO \(''([^'']+)''\)'))[1]::uuid <= tidemill.id_floor(until_at) order by c.relname loop execute format('select exists (select 1 from tidemill.%I where tier > $1 or tier < $1) ' 'or exists (select 1 from tidemill.%I where tier = $1 and finished_at >= $2) ' 'or exists (select 1 from tidemill.blobs b join tidemill.%I d on d.id = b.job_id where b.archived)',
  part.name, part.name, part.name) into kept using only_tier,
  until_at; continue when kept; execute format('lock table tidemill.%I in access exclusive mode',
  part.name); execute format('select count(*), coalesce(bool_or(tier <> $1 or finished_at >= $2),
  false) from tidemill.%I', part.name) into counted, kept using only_tier,
  until_at; continue when kept; total := total + counted; if part.name = 'archive_before' then truncate tidemill.archive_before; else execute format('drop table tidemill.%I',
  part.name); end if; end loop; return total; end $function$;
CREATE OR REPLACE FUNCTION tidemill.id_floor(floor_at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $function$ select (lpad(to_hex(floor(extract(epoch from floor_at) * 1000)::bigint),
  12, '0') || repeat('0', 20))::uuid $function$;
CREATE OR REPLACE FUNCTION tidemill.make_archive_month(month_at timestamptz) RETURNS boolean LANGUAGE plpgsql AS $function$ declare start timestamp := date_trunc('month',
  month_at at time zone 'UTC'); name text := 'archive_' || to_char(start,
  'YYYY_MM'); low uuid := tidemill.id_floor(start at time zone 'UTC'); high uuid := tidemill.id_floor((start + interval '1 month') at time zone 'UTC'); begin perform pg_advisory_xact_lock(hashtext('tidemill.archive')); if exists ( select 1 from pg_catalog.pg_inherits i where i.inhparent = 'tidemill.archive'::regclass and (i.inhrelid = to_regclass('tidemill.' || name) or (i.inhrelid = 'tidemill.archive_before'::regclass and low < (select (regexp_match(pg_get_expr(c.relpartbound,
  c.oid),
  'TO \(''([^'']+)''\)'))[1]::uuid from pg_catalog.pg_class c where c.oid = i.inhrelid)))) then return false; end if; perform set_config('lock_timeout',
  '200ms', true); execute format('create table tidemill.%I (like tidemill.archive including all)',
  name); execute format('with moved as (delete from tidemill.archive_default where id >= %L and id < %L returning *) ' 'insert into tidemill.%I select * from moved',
  low, high,
  name); execute format('alter table tidemill.archive attach partition tidemill.%I for values from (%L) to (%L)', name,
  low, high); return true; end $function$;
CREATE OR REPLACE FUNCTION tidemill.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $function$ begin raise exception 'the audit is append-only' using errcode = 'integrity_constraint_violation'; end $function$;
CREATE OR REPLACE FUNCTION tidemill.time_bucket(micros bigint) RETURNS integer LANGUAGE sql IMMUTABLE AS $function$ select width_bucket(micros - 1,
  '{1000,2000,4000,8000,16000,32000,64000,128000,256000,
  512000,1024000,2048000,4096000,8192000,16384000,32768000,65536000,131072000,
  262144000,524288000,1048576000,2097152000,4194304000,8388608000,16777216000,33554432000}'::int8[]) $function$;
CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE ON tidemill.audit FOR EACH ROW EXECUTE FUNCTION tidemill.refuse_change();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON tidemill.audit FOR EACH STATEMENT EXECUTE FUNCTION tidemill.refuse_change();
