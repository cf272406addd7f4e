"""For users' tests and for our own.

Users get it by ``app.testing()`` (``runner``) and by the pytest fixture ``tidemill_app`` (``plugin``); who writes a store runs the
``conformance`` suite. Real services, failpoints and the like are for our own tests.
"""
