"""HCCL's ranks, groups and timeouts; the collectives themselves are the frameworks' (torch.distributed over gloo). Imports no framework."""
