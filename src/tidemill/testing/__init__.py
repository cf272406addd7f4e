"""Testing support for users, store authors and Tidemill's own tests.

Users get ``app.testing()`` (``runner``) and the pytest fixture ``tidemill_app`` (``plugin``). Authors of a store run the
``conformance`` suite. Services, failpoints and the rest are for Tidemill's own tests.
"""
