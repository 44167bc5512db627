"""`torch_npu.testing.common_utils`, by AnyCANN."""

from anycann.adapters.torch.testing.decorators import SkipIfNoLapack, SkipIfNotGteCANNVersion, SupportedDevices
from anycann.adapters.torch.testing.profiles import check_operators_in_prof
from anycann.adapters.torch.testing.tensors import (
    create_common_tensor,
    create_dtype_tensor,
    get_npu_device,
    is_iterable,
    iter_indices,
    set_npu_device,
    test_2args_broadcast,
)

__all__ = [
    "SkipIfNoLapack",
    "SkipIfNotGteCANNVersion",
    "SupportedDevices",
    "check_operators_in_prof",
    "create_common_tensor",
    "create_dtype_tensor",
    "get_npu_device",
    "is_iterable",
    "iter_indices",
    "set_npu_device",
    "test_2args_broadcast",
]
