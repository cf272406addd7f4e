"""Testing support for users and store authors.

Users get ``app.testing()`` (``runner``) and the pytest fixture ``tidemill_app`` (``plugin``). Authors of a store run the
``conformance`` suite.
"""
