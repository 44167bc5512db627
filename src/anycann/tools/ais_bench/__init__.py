"""ais_bench and aclruntime: Ascend's benchmark of offline models, its Python interface, and the module below that."""
