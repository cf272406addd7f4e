-- move_archived_flows: moves archived flows to another tier.
-- takes: ids uuids, tier text, policy text
update tidemill.archived_flows set tier = :tier, policy = :policy where id = any(:ids::uuid[])
