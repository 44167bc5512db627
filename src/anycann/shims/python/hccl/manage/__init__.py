"""Groups and ranks: see hccl.manage.api."""
