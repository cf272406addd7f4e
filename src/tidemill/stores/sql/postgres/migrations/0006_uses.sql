-- expand: a count changes in its place, without a new entry in every index: nothing is indexed by it. Held jobs say what is in use.

drop index tidemill.uses_held;
