"""`apex` as Ascend ships it: mixed precision by levels (`levels.py`, `scaling.py`, `masters.py`), and the modules that stand beside it."""
