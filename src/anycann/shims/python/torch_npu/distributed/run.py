"""`torch_npu_run` and `python -m torch_npu.distributed.run`: torchrun."""

from torch.distributed.run import get_args_parser, main, parse_args, run

__all__ = ["get_args_parser", "main", "parse_args", "run"]

if __name__ == "__main__":
    main()
