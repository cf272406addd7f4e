-- claim_jobs: moves claimed jobs to running, and releases the unique keys that are held until the claim.
begun as (
  insert into tidemill.running(
    -- include: job_columns
    , attempt, crashes, token, run_at, unique_key, state, worker, claimed_at, started_at)
  select
    -- include: job_columns
    , attempt + 1, crashes, token + 1, run_at, case when not until_claimed then unique_key end,
    case crashes when 0 then :state::text else 'claimed' end, {worker}, coalesce(:now::timestamptz, {clock}),
    case when crashes = 0 and :state::text = 'running' then coalesce(:now::timestamptz, {clock}) end
  from {jobs}),
-- include: release_keys(jobs=got where until_claimed; lets_go=false)
