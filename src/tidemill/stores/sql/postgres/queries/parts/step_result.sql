-- step_result: the claimed jobs, and a separate row for each lost id.
select
  -- include: claimed_row
  , null::uuid as lost
-- gives: lost uuid
from got
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, id
from (select id from item except select id from gone) l
