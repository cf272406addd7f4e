-- carried_job: the conditions under which a job that no worker holds can go to another store.
j.token = 0 and not j.tied
and not exists (select 1 from tidemill_blobs b where b.job_id = j.id)
and not exists (select 1 from tidemill_signals s where s.job_id = j.id)
