-- light_jobs: deletes the earlier executions of jobs that keep only the last one, and all records of jobs that keep nothing.
executions_gone as (
  delete from tidemill.executions where job_id = any(array(select id from gone where keep <> 'all' and token > 1))),
details_gone as (delete from tidemill.details where id = any(array(select id from gone where keep = 'nothing' and not tied and detailed))),
logs_gone as (delete from tidemill.logs where job_id = any(array(select id from gone where keep = 'nothing' and not tied))),
checkpoints_gone as (delete from tidemill.checkpoints where job_id = any(array(select id from gone where keep = 'nothing' and not tied))),
streams_gone as (delete from tidemill.streams where job_id = any(array(select id from gone where keep = 'nothing' and not tied))),
signals_gone as (delete from tidemill.signals where job_id = any(array(select id from gone where keep = 'nothing' and not tied))),
waits_gone as (delete from tidemill.waits where job_id = any(array(select id from gone where keep = 'nothing' and not tied))),
blobs_gone as (
  delete from tidemill.blobs where place is null and job_id = any(array(select id from gone where keep = 'nothing' and not tied))),
