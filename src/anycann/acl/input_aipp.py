"""acl.mdl: the input of a model that takes the settings of a dynamic AIPP, and what a run makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.data_buffers import DataBuffer, Dataset, check_index
from anycann.acl.dynamic_aipp import DynamicAipp
from anycann.acl.entries import status
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS
from anycann.acl.models import AIPP_INPUT, Model
from anycann.acl.process import PROCESS
from anycann.om.plan import TensorSpec


@status("acl.mdl.set_input_aipp")
def set_input_aipp(model_id: int, dataset: int, index: int, aipp: int) -> None:
    """The next runs of this dataset take these settings. `index` is that of the input called ascend_dynamic_aipp_data."""
    model = MODELS.get(model_id)
    check_index(index, len(model.inputs), "input")
    fed = {model.aipp_index(number): number for number in model.dynamic_aipp}
    if index not in fed:
        raise AclError(
            Code.INVALID_PARAM, f"input {index} of {model.where} takes no AIPP settings; get_input_index_by_name finds {AIPP_INPUT}"
        )
    _attach(model, dataset, fed[index], index, aipp)


@status("acl.mdl.set_aipp_by_input_index")
def set_aipp_by_input_index(model_id: int, dataset: int, index: int, aipp: int) -> None:
    """The next runs of this dataset take these settings for the pictures of input `index`."""
    model = MODELS.get(model_id)
    check_index(index, len(PROCESS.handles.get(dataset, Dataset).buffers), "input")
    check_index(index, len(model.inputs), "input")
    if index not in model.dynamic_aipp:
        raise AclError(Code.FAILURE, f"input {index} ({model.inputs[index].name!r}) of {model.where} has no dynamic AIPP")
    _attach(model, dataset, index, model.aipp_index(index), aipp)


def _attach(model: Model, dataset: int, index: int, settings_index: int, aipp: int) -> None:
    found, settings = PROCESS.handles.get(dataset, Dataset), PROCESS.handles.get(aipp, DynamicAipp)
    check_index(settings_index, len(found.buffers), "input")
    settings = settings.copy()
    _check_for(settings, model, index)
    packed = settings.packed()
    PROCESS.handles.get(found.buffers[settings_index], DataBuffer).array(np.dtype(np.uint8), (len(packed),))[:] = np.frombuffer(
        packed, np.uint8
    )
    found.settings[index] = settings
    PROCESS.handles.changed()


def _check_for(settings: DynamicAipp, model: Model, index: int) -> None:
    """Raises AclError for what AscendCL does not take for the pictures of input `index`."""
    taken = model.most_pictures(index)
    if taken not in (None, settings.batch):
        raise AclError(Code.INVALID_PARAM, f"the dynamic AIPP is for {settings.batch} pictures; {model.where} takes {taken}")
    if settings.scaling:
        raise AclError(
            Code.INVALID_PARAM, f"picture {min(settings.scaling)} is to be scaled; no chip's AIPP scales yet: acl.media and acl.himpi do"
        )
    check_pictures(settings, model, index)


def check_pictures(settings: DynamicAipp, model: Model, index: int) -> None:
    """Raises what the settings raise, and AclError for pictures that are larger than input `index` takes."""
    if index in model.converting:
        _, nbytes = settings.table(picture_sizes(model, index, ()))
    else:  # the size of the pictures is open
        blocks = [settings.block(number) for number in range(settings.batch)]
        nbytes = sum(block.source_bytes(1, block.src_image_size_h, block.src_image_size_w) for block in blocks)
    most = int(model.dynamic_aipp[index]["max_src_image_size"])
    if nbytes > most:
        raise AclError(Code.INVALID_PARAM, f"the pictures have {nbytes} bytes; max_src_image_size of the model is {most}")


# ---- a run with them
def settings_table(model: Model, index: int, settings: object, spec: TensorSpec) -> np.ndarray:
    """What a program reads from its input `spec`: the settings for the pictures of input `index`. Raises AclError where there are none."""
    batch = int(spec.shape[0] or 0)
    return _given(model, index, settings, batch).table(picture_sizes(model, index, ()))[0][:batch]


def convert_in_front(model: Model, index: int, settings: object, buffer: DataBuffer, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The pictures in `buffer` as input `index` takes them, for a model that does not convert them itself. Raises AclError."""
    from anycann.picture_input import AXES, convert_pictures

    input_format = str(model.dynamic_aipp[index]["input_format"])
    batch = shape[AXES[input_format][0]]
    table, nbytes = _given(model, index, settings, batch).table(picture_sizes(model, index, shape))
    pictures = buffer.array(np.dtype(np.uint8), (nbytes,))
    return convert_pictures(pictures, table[:batch], np.empty(shape, np.dtype(dtype)), input_format)


def _given(model: Model, index: int, settings: object, batch: int) -> DynamicAipp:
    if not isinstance(settings, DynamicAipp):
        raise AclError(
            Code.GE_AIPP_MODE_INVALID,
            f"input {model.inputs[index].name!r} has dynamic AIPP and no settings; acl.mdl.set_input_aipp gives them",
        )
    if settings.batch < batch:
        raise AclError(Code.GE_AIPP_BATCH_EMPTY, f"the dynamic AIPP is for {settings.batch} pictures; the model takes {batch}")
    return settings


def picture_sizes(model: Model, index: int, shape: Sequence[Any]) -> tuple[int, int, int]:
    """Channels, height and width that are made of the pictures of input `index`, whose program takes `shape`."""
    from anycann.picture_input import AXES

    facts = model.dynamic_aipp[index]
    _, *by_shape = (shape[axis] for axis in AXES[str(facts["input_format"])]) if index not in model.converting else (0, *facts["sizes"])
    channels, height, width = by_shape
    return int(channels), int(height), int(width)
