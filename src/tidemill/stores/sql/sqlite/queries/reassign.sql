-- reassign: gives jobs that this transaction has claimed to other workers.
-- items: id uuid, worker uuid
update tidemill_running set worker = :worker where id = :id
