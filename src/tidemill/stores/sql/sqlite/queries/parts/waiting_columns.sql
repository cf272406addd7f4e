-- waiting_columns: the columns of a job that no worker holds.
-- include: job_columns
, attempt, crashes, token, run_at, unique_key, until_claimed
