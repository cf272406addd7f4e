-- step: finishes a batch of jobs that end and claims the next batch, in one statement and one commit.
-- PostgreSQL only: SQLite has no statement that writes to several tables, so it runs finish and claim in one transaction. `finish`
-- is used for jobs that are released, hold a unique key, or belong to another worker than the claim. The result contains the
-- claimed rows, and a separate row for each lost id.
-- items: id uuid, token int8, to_state text, execution text, reason text, crashed bool, result text, error text
-- items: started_ago float8, ended_ago float8, fingerprint text, variant text, cause text, message text
with item as materialized (
  select x.*, :worker::uuid as worker
  from unnest(:id::uuid[], :token::bigint[], :to_state::text[], :execution::text[], :reason::text[],
              :crashed::boolean[], :result::text[], :error::text[], :started_ago::float8[], :ended_ago::float8[]
              , :fingerprint::text[], :variant::text[], :cause::text[], :message::text[] -- when failing
              )
    as x(id, token, to_state, execution, reason, crashed, result, error, started_ago, ended_ago
         , fingerprint, variant, cause, message -- when failing
         )
  order by id),
gone as (
  -- include: fenced
    and not r.tied
  returning r.*, x.to_state, x.execution, x.reason, x.crashed, x.result, x.error, x.started_ago, x.ended_ago
            , x.fingerprint, x.variant, x.cause, x.message -- when failing
            ),
-- include: end_jobs
-- include: step_claim
