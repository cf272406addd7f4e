-- fenced: deletes the held jobs of a batch by id, token and worker.
-- `is not distinct from` keeps the planner from using the index running_worker, which has many jobs per worker.
delete from tidemill.running r using item x where r.id = x.id and r.token = x.token and r.worker is not distinct from x.worker
