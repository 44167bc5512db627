"""Errors, options, logging, the cache folder and atomic files: what everything else stands on."""
