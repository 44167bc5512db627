"""ais_bench.infer.interface: sessions that take numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np

from anycann.tools.ais_bench import tensors
from anycann.tools.ais_bench.inference import InferenceSession, RunTimes, SessionOptions
from anycann.tools.ais_bench.tensors import BaseTensor, CallError, Tensor, TensorDescription

Feed: TypeAlias = Any  # an array, a number of numpy, a torch tensor or a Tensor
_MODES = {"static": "static"} | {f"dy{letter}{mode}": mode for letter in "mn" for mode in ("batch", "hw", "dims", "shape")}


class InferSession:
    """An offline model on a device. `loop`: how often each run is repeated."""

    def __init__(self, device_id: int, model_path: str, acl_json_path: str | None = None, debug: bool = False, loop: int = 1):
        self.device_id, self.model_path, self.loop = device_id, model_path, loop
        self.session = InferenceSession(model_path, device_id, SessionOptions(acl_json_path or "", 1 if debug else 2, loop))
        self.outputs_names = [output.name for output in self.session.get_outputs()]

    # ---- what it takes and gives
    def get_inputs(self) -> list[TensorDescription]:
        """Name, datatype, format, shape, size and realsize of each input."""
        return self.session.get_inputs()

    def get_outputs(self) -> list[TensorDescription]:
        """The same of each output."""
        return self.session.get_outputs()

    # ---- settings
    def set_loop_count(self, loop: int) -> None:
        """How often each run is repeated."""
        self.session.options().loop = loop

    def set_staticbatch(self) -> None:
        """Take the shapes of the model."""
        self.session.set_staticbatch()

    def set_dynamic_batchsize(self, dym_batch: int) -> None:
        """Choose the gear of a batch."""
        self.session.set_dynamic_batchsize(int(dym_batch))

    def set_dynamic_hw(self, w: int, h: int) -> None:
        """Choose the gear of an image size; the first number is the first that --dymHW has (the height)."""
        self.session.set_dynamic_hw(w, h)

    def set_dynamic_dims(self, dym_dims: str) -> None:
        """Choose the gear of these shapes: "data:1,600;info:1,2"."""
        self.session.set_dynamic_dims(dym_dims)

    def set_dynamic_shape(self, dym_shape: str) -> None:
        """The next runs have these shapes."""
        self.session.set_dynamic_shape(dym_shape)

    def set_custom_outsize(self, custom_sizes: Sequence[int]) -> None:
        """Bytes of each output at most, for open shapes."""
        self.session.set_custom_outsize(custom_sizes)

    def load_aipp_config_file(self, config_file: str, batchsize: int = 0) -> None:
        """The settings of the dynamic AIPP. The batch is that of the model, or of the gear that is chosen."""
        self.session.set_aipp(config_file)

    # ---- tensors
    def create_tensor_from_fileslist(self, desc: TensorDescription, files: Sequence[str]) -> Tensor:
        """Raw files as one tensor on the device."""
        return self.session.create_tensor_from_fileslist(desc, files)

    def create_tensor_from_arrays_to_device(self, arrays: np.ndarray) -> Tensor:
        """An array as a tensor on the device."""
        tensor = Tensor(arrays)
        tensor.to_device(self.device_id)
        return tensor

    def convert_tensors_to_host(self, tensors: Sequence[Tensor]) -> None:
        """Copy each to the host."""
        for tensor in tensors:
            tensor.to_host()

    def convert_tensors_to_arrays(self, tensors: Sequence[Tensor]) -> list[np.ndarray]:
        """The arrays of tensors that are on the host."""
        return [np.array(tensor) for tensor in tensors]

    # ---- runs
    def run(self, feeds: Sequence[Feed], out_array: bool = False) -> list[Any]:
        """Run on arrays or tensors; answers with tensors on the device, or with arrays."""
        arrays = [np.ascontiguousarray(feed) if isinstance(feed, np.ndarray) else feed for feed in feeds]
        given = [BaseTensor(feed.ctypes.data, feed.nbytes) if isinstance(feed, np.ndarray) else feed for feed in arrays]
        outputs = self.session.run(self.outputs_names, given)
        if not out_array:
            return outputs
        self.convert_tensors_to_host(outputs)
        return self.convert_tensors_to_arrays(outputs)

    def infer(
        self, feeds: Sequence[Feed], mode: str = "static", custom_sizes: int | Sequence[int] = 100000, out_array: bool = True
    ) -> list[Any]:
        """Run once. mode: static, dymbatch, dymhw, dymdims or dymshape; all but static take the shapes from the feeds."""
        arrays = _arrays(feeds)
        self._set_mode(mode, [self.session.shape_behind(number, array) for number, array in enumerate(arrays)], custom_sizes)
        return self.run(arrays, out_array)

    def infer_pipeline(
        self, feeds_list: Sequence[Sequence[Feed]], mode: str = "static", custom_sizes: int | Sequence[int] = 100000
    ) -> list[list[np.ndarray]]:
        """Run on one list of feeds after another, while the next feeds become arrays and the last outputs go to the host."""
        results: list[Any] = []
        with ThreadPoolExecutor(2) as beside:
            prepared = [beside.submit(_arrays, feeds) for feeds in feeds_list]
            for feeds in prepared:
                arrays = feeds.result()
                outputs = self.infer(arrays, mode, custom_sizes, out_array=False)
                results.append(beside.submit(self._to_arrays, outputs))
        return [result.result() for result in results]

    def infer_iteration(
        self,
        feeds: Sequence[Feed],
        in_out_list: Sequence[int] | None = None,
        iteration_times: int = 1,
        mode: str = "static",
        custom_sizes: int | Sequence[int] = 100000,
        mem_copy: bool = True,
    ) -> list[np.ndarray]:
        """Run `iteration_times`, and answer with the last outputs.

        Input i of the next turn is output in_out_list[i] of the last (-1: as it was).
        """
        links = list(in_out_list) if in_out_list is not None else [-1] * len(feeds)
        if len(links) != len(feeds) or iteration_times < 1:
            raise CallError(
                f"{len(feeds)} feeds, in_out_list {links}, {iteration_times} turns; accepted: a number for each feed, 1 turn or more"
            )
        current, outputs = list(feeds), []
        for _ in range(iteration_times):
            outputs = self.infer(current, mode, custom_sizes)
            current = [outputs[link] if link >= 0 else feed for link, feed in zip(links, current, strict=True)]
        return outputs

    def _to_arrays(self, outputs: Sequence[Tensor]) -> list[np.ndarray]:
        self.convert_tensors_to_host(outputs)
        return self.convert_tensors_to_arrays(outputs)

    def _set_mode(self, mode: str, shapes: Sequence[tuple[int, ...]], custom_sizes: int | Sequence[int]) -> None:
        kind = _MODES.get(mode)
        if kind is None:
            raise CallError(f"mode is {mode!r}; accepted: static, dymbatch, dymhw, dymdims, dymshape")
        inputs = self.session.model.inputs
        text = ";".join(f"{tensor.name}:{','.join(map(str, shape))}" for tensor, shape in zip(inputs, shapes, strict=False))
        if kind == "shape":
            self.set_dynamic_shape(text)
            sizes = [custom_sizes] * len(self.outputs_names) if isinstance(custom_sizes, int) else list(custom_sizes)
            self.set_custom_outsize(sizes)
        elif kind == "dims":
            self.set_dynamic_dims(text)
        elif kind in ("batch", "hw"):
            declared = zip(self.session.model.declared, shapes, strict=False)
            chosen = [size for dims, shape in declared for d, size in zip(dims, shape, strict=False) if d == -1]
            self.set_dynamic_batchsize(chosen[0]) if kind == "batch" else self.set_dynamic_hw(*chosen[:2])

    # ---- times and the end
    def sumary(self) -> RunTimes:
        """`exec_time_list`: milliseconds of each run."""
        return self.session.sumary()

    summary = sumary

    def reset_sumaryinfo(self) -> None:
        """Forget the times."""
        self.session.reset_sumaryinfo()

    reset_summaryinfo = reset_sumaryinfo

    def free_resource(self) -> None:
        """Unload the model."""
        self.session.free_resource()

    def finalize(self) -> None:
        """Unload the model and end AscendCL if nothing else uses it."""
        self.session.finalize()


class MemorySummary:
    """How long copies to devices and back took, in milliseconds."""

    @staticmethod
    def get_H2D_time_list() -> list[float]:  # noqa: N802 - ais_bench's name
        """Of each copy to a device."""
        return tensors.MemorySummary().H2D_time_list

    @staticmethod
    def get_D2H_time_list() -> list[float]:  # noqa: N802 - ais_bench's name
        """Of each copy to the host."""
        return tensors.MemorySummary().D2H_time_list

    get_h2d_time_list, get_d2h_time_list = get_H2D_time_list, get_D2H_time_list

    @staticmethod
    def reset() -> None:
        """Forget them."""
        tensors.MemorySummary().reset()


def _arrays(feeds: Sequence[Feed]) -> list[np.ndarray]:
    return [_array(feed) for feed in feeds]


def _array(feed: Feed) -> np.ndarray:
    """An array, a number of numpy, a torch tensor, or a tensor that is on the host. Raises CallError."""
    if isinstance(feed, np.ndarray):
        return feed
    if isinstance(feed, np.generic):
        return np.array(feed).reshape(1)
    if isinstance(feed, Tensor):
        return feed.data
    if hasattr(feed, "detach") and hasattr(feed, "numpy"):
        return np.ascontiguousarray(feed.detach().cpu().numpy())
    raise CallError(f"a feed is a {type(feed).__name__}; accepted: a numpy array, a torch tensor or an aclruntime.Tensor")
