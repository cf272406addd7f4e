-- expand: failures and cancellations by the time they ended, for those who watch. What completed costs nothing more.

create index tidemill_history_troubled_at on tidemill_history(state, finished_at, id) where state <> 'completed';
