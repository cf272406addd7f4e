-- release_keys: releases the unique keys of these jobs, or keeps them until their windows have passed. Locks them in key order.
keyed as materialized (
  select u.place, u.stays
  from (select tenant, unique_key, id from {jobs}
        order by tenant collate "C", unique_key collate "C") g
  cross join lateral (
    select ctid as place, coalesce(window_ends_at > coalesce(:now::timestamptz, now()), false) and not {lets_go} as stays
    from tidemill.uniques where tenant = g.tenant and key = g.unique_key and job_id = g.id for update) u),
let_go as (delete from tidemill.uniques where ctid = any(array(select place from keyed where not stays))),
dimmed as (update tidemill.uniques set live = false where ctid = any(array(select place from keyed where stays)))
