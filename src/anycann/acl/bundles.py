"""acl.mdl: bundles, files that hold several models, as `anycann.om.bundle.write_bundle` makes them. An offline model is a bundle of one."""

from __future__ import annotations

from collections.abc import Sequence

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS, bytes_at
from anycann.acl.process import PROCESS
from anycann.om.bundle import MAGIC, is_bundle, read_bundle
from anycann.support.errors import ModelError, describe
from anycann.support.records import dataclass


@dataclass(frozen=True)
class Bundle:
    """The ids of its models."""

    models: tuple[int, ...]


class _Bundles:
    """The loaded bundles by id, a small number as a model's."""

    def __init__(self) -> None:
        self._loaded: dict[int, Bundle] = {}
        self._next = 1

    def load(self, source: str | bytes) -> int:
        """Load what `source` holds. Raises AclError."""
        models: list[int] = []
        try:
            for each in _models_of(source):
                models.append(MODELS.load(each))
        except Exception:
            for model in models:
                MODELS.unload(model)
            raise
        with PROCESS.lock:
            number, self._next = self._next, self._next + 1
            self._loaded[number] = Bundle(tuple(models))
        return number

    def get(self, number: int) -> Bundle:
        """Raises AclError for an id that is not loaded."""
        if number not in self._loaded:
            loaded = ", ".join(map(str, self._loaded)) or "none"
            raise AclError(Code.INVALID_BUNDLE_MODEL_ID, f"bundle {number} is not loaded; loaded: {loaded}")
        return self._loaded[number]

    def unload(self, number: int) -> None:
        """Forget a bundle and its models, those included that the program unloaded by themselves."""
        for model in self.get(number).models:
            if model in MODELS.live():
                MODELS.unload(model)
        del self._loaded[number]

    def clear(self) -> None:
        """Forget all of them; their models go with the others."""
        self._loaded.clear()


def _models_of(source: str | bytes) -> Sequence[str | bytes]:
    """What each model is loaded from. Raises AclError for a bundle that is damaged."""
    content = source if isinstance(source, bytes) else _bundle_of(source)
    if not is_bundle(content):
        return [source]
    try:
        return read_bundle(content, source if isinstance(source, str) else "the bundle in memory")
    except ModelError as error:
        raise AclError(Code.PARSE_MODEL, describe(error)) from error


def _bundle_of(path: str) -> bytes:
    """The bytes of a bundle; none of any other file, which is for the load to look at."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
            return start + file.read() if is_bundle(start) else b""
    except OSError:
        return b""


_BUNDLES = _Bundles()
PROCESS.ending.append(_BUNDLES.clear)


@value_and_status("acl.mdl.bundle_load_from_file", returns="(bundle_id, ret)")
def bundle_load_from_file(path: str) -> int:
    """Load the models of a file."""
    return _BUNDLES.load(path)


@value_and_status("acl.mdl.bundle_load_from_mem", returns="(bundle_id, ret)")
def bundle_load_from_mem(ptr: int, size: int) -> int:
    """Load the models whose `size` bytes lie at `ptr`; they may go afterwards."""
    return _BUNDLES.load(bytes_at(ptr, size))


@value_and_status("acl.mdl.bundle_get_model_num", returns="(count, ret)")
def bundle_get_model_num(bundle_id: int) -> int:
    """How many models a bundle has."""
    return len(_BUNDLES.get(bundle_id).models)


@value_and_status("acl.mdl.bundle_get_model_id", returns="(model_id, ret)")
def bundle_get_model_id(bundle_id: int, index: int) -> int:
    """The id of model number `index`, for acl.mdl.execute and get_desc."""
    models = _BUNDLES.get(bundle_id).models
    if not 0 <= index < len(models):
        raise AclError(Code.INVALID_PARAM, f"model {index} of bundle {bundle_id} is not there; accepted: 0 to {len(models) - 1}")
    return models[index]


@status("acl.mdl.bundle_unload")
def bundle_unload(bundle_id: int) -> None:
    """Forget a bundle and its models."""
    _BUNDLES.unload(bundle_id)
