-- finishing: the batch `x` with the held jobs `r` that it finishes, each looked up once.
temp.tidemill_held h cross join temp.tidemill_item_finish x on x.n = h.n cross join tidemill_running r on r.rowid = h.place
