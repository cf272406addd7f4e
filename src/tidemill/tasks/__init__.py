"""Declaration of tasks: options, argument codec and registry.

This package accesses no store and starts no threads.
"""
