-- log_conditions: the conditions of a log search that the table of lines answers.
  and l.level in (select value from json_each(:levels)) -- when levels
  and l.job_id = :job_id -- when job_id
  and l.at >= :since -- when since
  and l.at < :until -- when until
  and (l.at, l.position) < (:before_at, :before_position) -- when before_at
