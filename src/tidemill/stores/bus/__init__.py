"""Wake-ups between processes over Redis or NATS instead of the database."""
