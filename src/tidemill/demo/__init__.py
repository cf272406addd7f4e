"""Sample app of ``tidemill demo``, at ``tidemill.demo.sample_app:app``.

Its tasks succeed, fail, wait and ask for review, for two tenants. No other package imports it, except the CLI by name.
"""
