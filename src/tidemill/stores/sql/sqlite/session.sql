-- Temporary tables of a writing connection, in which queries collect a batch before they process it.
-- A query empties its table first.

create temp table if not exists tidemill_item_enqueue(
  n integer primary key, id blob not null unique, tenant text, queue text, task text, priority integer, max_attempts integer,
  timeout integer, due_at integer, created_at integer, expires_at integer, unique_key text, until_claimed integer,
  window_ends_at integer, limits text, details text, detailed integer as (details is not null), args text, waiting text, tied integer not null default 0, taken integer not null default 0, left_out integer not null default 0);

create temp table if not exists tidemill_item_finish(
  n integer primary key, id blob not null, token integer, worker blob, to_state text, execution text, why text, delay integer,
  refund integer, crashed integer, result text, error text, started_ago real, ended_ago real, on_cancel text, keep text,
  fingerprint text, variant text, cause text, message text);

create temp table if not exists tidemill_item_move(
  n integer primary key, id blob not null unique, tenant text, expect text, to_state text, why text, delay integer,
  restart integer, result text, lets_go integer);

create temp table if not exists tidemill_moved(
  n integer primary key, id blob not null unique, tenant text, queue text, task text, priority integer, attempt integer,
  max_attempts integer, crashes integer, token integer, run_at integer, created_at integer, expires_at integer, timeout integer,
  unique_key text, until_claimed integer, limits text, detailed integer, args text, tied integer, old_state text, to_state text,
  why text, due_at integer, result text);

create temp table if not exists tidemill_held(
  place integer primary key, n integer not null, new_state text not null, keyed integer not null,
  ends integer as (new_state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')) stored);

create temp table if not exists tidemill_merging(seq integer primary key);

create temp table if not exists tidemill_got(seq integer primary key, keyed integer not null);

create temp table if not exists tidemill_due(id blob primary key) without rowid;

create temp table if not exists tidemill_lost(id blob primary key) without rowid;

create temp table if not exists tidemill_gone(id blob primary key, detailed integer not null) without rowid;

create temp table if not exists tidemill_restored(id blob primary key, tenant text, details text) without rowid;

create temp table if not exists tidemill_keyed(n integer primary key, id blob, tenant text, key text);

create temp table if not exists tidemill_holders(tenant text, key text, job_id blob);

create temp table if not exists tidemill_pausing(kind text, name text);

create temp table if not exists tidemill_resumed(kind text, name text, reason text, paused_by text, paused_at integer);

create temp table if not exists tidemill_fit(id blob primary key) without rowid;

create temp table if not exists tidemill_item_schedule(
  n integer primary key, id blob not null unique, tenant text, key text, definition_id blob, task text, trigger text, timezone text,
  calendar text, exclude text, args text, options text, misfire text, overlap text, scope text, source text, enabled integer,
  note text, revision integer, next_fire_at integer);

create temp table if not exists tidemill_firing(
  schedule_id blob, fire_at integer, scope_key text, primary key (schedule_id, fire_at, scope_key)) without rowid;

create temp table if not exists tidemill_names(name text primary key) without rowid;

create temp table if not exists tidemill_windows(name text primary key, since_at integer) without rowid;

create temp table if not exists tidemill_item_signal(
  n integer primary key, job_id blob not null, tenant text, name text, payload text, key text, source text, answer text not null);

create temp table if not exists tidemill_taken(position integer primary key, key text, value text);

create temp table if not exists tidemill_reopened(id blob primary key, state text) without rowid;
