"""acl.mdl: the input of a model that takes the settings of a dynamic AIPP, and what a run makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.data_buffers import DataBuffer, Dataset, check_index
from anycann.acl.dynamic_aipp import DynamicAipp
from anycann.acl.entries import status
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS
from anycann.acl.models import AIPP_INPUT, Model
from anycann.acl.picture_inputs import PictureInput
from anycann.acl.process import PROCESS
from anycann.om.plan import TensorSpec


@status("acl.mdl.set_input_aipp")
def set_input_aipp(model_id: int, dataset: int, index: int, aipp: int) -> None:
    """The next runs of this dataset take these settings. `index` is that of the input called ascend_dynamic_aipp_data.

    With gears they are for the largest batch, and their pictures come to the height and width of the gear that runs.
    """
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
    """Raises what the settings raise, and AclError for pictures that no gear takes, or that are larger than input `index` takes."""
    made, accepted = settings.made_size(), _accepted_sizes(model, index)
    if len(accepted) > 1 and made not in accepted:
        raise AclError(
            Code.INVALID_PARAM, f"the pictures come to {_words(made)} (height x width); accepted: {', '.join(map(_words, accepted))}"
        )
    pictures = model.dynamic_aipp[index]
    _table(settings, pictures, (pictures.channels, *(made if made in accepted or not accepted else accepted[0])))


def _table(settings: DynamicAipp, pictures: PictureInput, sizes: tuple[int, int, int]) -> np.ndarray:
    """What the operator reads. Raises AclError for settings that do not make `sizes`, and for more bytes than the operator may read."""
    table, nbytes = settings.table(sizes)
    if nbytes > pictures.max_src_image_size:
        raise AclError(
            Code.INVALID_PARAM, f"the pictures have {nbytes} bytes; max_src_image_size of the model is {pictures.max_src_image_size}"
        )
    return table


def _accepted_sizes(model: Model, index: int) -> list[tuple[int, int]]:
    """Height and width of input `index` in each gear; the only ones where there are none; nothing for what is open."""
    programs = [(*gear.inputs, *gear.further) for gear in model.gears] or [model.specs(model.declared)]
    found = [model.dynamic_aipp[index].sizes(specs) for specs in programs]
    return [] if model.is_open else list(dict.fromkeys((height, width) for _, _, height, width in found))


def _words(size: Sequence[int]) -> str:
    return " x ".join(map(str, size))


# ---- a run with them
def settings_feeds(model: Model, settings: Mapping[int, object], inputs: Sequence[TensorSpec]) -> list[np.ndarray]:
    """What a program that takes `inputs` is fed behind the model's own. Raises AclError for pictures without settings, or with others."""
    feeds = []
    for number, pictures in model.dynamic_aipp.items():
        batch, channels, height, width = pictures.sizes(inputs)
        feeds.append(_table(settings_of(model, number, settings, batch), pictures, (channels, height, width))[:batch])
        if pictures.frame:
            feeds.append(np.empty((0, height, width), np.uint8))
    return feeds


def settings_of(model: Model, index: int, settings: Mapping[int, object], batch: int = 1) -> DynamicAipp:
    """Those for the pictures of input `index`. Raises AclError where there are none, or for fewer pictures."""
    found = settings.get(index)
    if not isinstance(found, DynamicAipp):
        raise AclError(
            Code.GE_AIPP_MODE_INVALID,
            f"input {model.inputs[index].name!r} has dynamic AIPP and no settings; acl.mdl.set_input_aipp gives them",
        )
    if found.batch < batch:
        raise AclError(Code.GE_AIPP_BATCH_EMPTY, f"the dynamic AIPP is for {found.batch} pictures; the model takes {batch}")
    return found


def made_shape(model: Model, index: int, settings: DynamicAipp, batch: int) -> tuple[int, ...]:
    """What the model itself takes of so many pictures with these settings, where its sizes are open."""
    pictures = model.dynamic_aipp[index]
    height, width = settings.made_size()
    by_letter = dict(zip("NCHW", (batch, pictures.channels, height, width), strict=True))
    return tuple(by_letter[letter] for letter in pictures.input_format)
