-- lock_ties: the held jobs among these, and whether their end is counted. The transaction is the only writer, so it locks nothing else.
-- `defined` says whether a tied job belongs to a definition.
-- A later statement of the transaction then sees every edge that was attached before, and no edge is attached until it ends.
-- takes: ids uuids
-- gives: id uuid, tied bool, defined bool
select r.id, r.tied,
       r.tied and r.detailed and exists (
         select 1 from tidemill_details d where d.id = r.id and d.definition_id is not null) as defined
from tidemill_running r where id in (select unhex(value) from json_each(:ids))
