"""`from ais_bench.infer.summary import summary`: what a program fills with its times and prints."""

from anycann.tools.ais_bench.summary import Summary, set_up_logging

__all__ = ["Summary", "summary"]

set_up_logging(debug=False)
summary = Summary()
