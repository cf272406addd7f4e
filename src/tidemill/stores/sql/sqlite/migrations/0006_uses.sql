-- expand: a count changes in its place, without an index to keep. Held jobs say what is in use.

drop index tidemill_uses_held;
