"""The runner: runs jobs and watches over them."""
