"""Creation of jobs: options, construction, batching and writing."""
