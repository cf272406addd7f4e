-- keyed_flow: the flow with this tenant, name and key. Index: flows_key.
-- takes: tenant text, name text, key text
-- gives: id uuid
select id from tidemill_flows where tenant = :tenant and name = :name and key = :key
