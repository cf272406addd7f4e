-- move_archived_flows: moves archived flows to another tier.
-- takes: ids uuids, tier text, policy text
update tidemill_archived_flows set tier = :tier, policy = :policy where id in (select unhex(value) from json_each(:ids))
