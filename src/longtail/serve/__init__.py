"""A small HTTP service around a trained classifier; needs the extra `serve`."""

from longtail.serve.app import create_app

__all__ = ["create_app"]
