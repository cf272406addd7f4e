"""Jobs: queries, handles, waiting, and reasons why a job is not running."""
