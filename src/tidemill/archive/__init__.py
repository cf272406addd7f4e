"""Places of archived jobs, and the runs that move jobs between them."""
