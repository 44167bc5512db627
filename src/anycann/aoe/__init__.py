"""Tuning of whole models: which kernels a model has, which algorithms and rules suit it, and the reports in Ascend's words."""
