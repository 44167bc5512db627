"""Data dump: what the operators of a model took and gave, as files that Ascend's tools compare."""
