-- reassign: gives jobs that this transaction has claimed to other workers; they are already locked.
-- items: id uuid, worker uuid
update tidemill.running r set worker = x.worker from unnest(:id::uuid[], :worker::uuid[]) as x(id, worker) where r.id = x.id
