"""`python -m torch_npu.utils.collect_env`."""

from anycann.adapters.torch.utils.environment import get_cann_version, get_pretty_env_info, get_torch_npu_version, main

__all__ = ["get_cann_version", "get_pretty_env_info", "get_torch_npu_version", "main"]

if __name__ == "__main__":
    main()
