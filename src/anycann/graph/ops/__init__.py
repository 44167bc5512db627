"""One file per operator family; each operator is one definition (see graph/registry.py)."""
