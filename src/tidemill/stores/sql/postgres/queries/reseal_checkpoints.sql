-- reseal_checkpoints: replaces the value of a checkpoint, unless it changed. Index: primary key.
-- takes: id uuid, name text, old text, new text
-- gives: job_id uuid
update tidemill.checkpoints set value = :new where job_id = :id and name = :name and value = :old returning job_id
