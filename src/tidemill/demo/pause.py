"""The queue that the demo pauses, with a backlog."""

QUEUE = "exports"
REASON = "the warehouse moves to a new server until Friday"
