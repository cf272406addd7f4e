"""Django migrations: the permissions of the unmanaged model. The signal ``post_migrate`` applies the schema's own."""
