-- expand: failures and cancellations by the time they ended, for those who watch. What completed costs nothing more.

create index history_troubled_at on tidemill.history(state, finished_at, id) where state <> 'completed';
