"""A small world to look at: sample tasks that succeed, fail, wait and ask, for two tenants. Shown by ``tidemill demo``.

Nothing of the product imports it. Its app is ``tidemill.demo.world:app``.
"""
