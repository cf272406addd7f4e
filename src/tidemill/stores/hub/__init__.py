"""The store of a hand, whose verbs a hub performs."""
