"""What `import acl` gives: a module with the functions of `acl`, and one each for acl.rt, acl.mdl, ...; no constants, as in pyACL."""

from __future__ import annotations

from collections.abc import Callable
import difflib
import importlib
import sys
from types import ModuleType

from anycann.acl.entries import BORDER
from anycann.support import options as settings

# every file that declares functions
_FILES = (
    "initialise",
    "contexts",
    "memory",
    "streams",
    "util",
    "tensor_descs",
    "data_buffers",
    "model_loading",
    "bundles",
    "dynamic_aipp",
    "input_aipp",
    "model_aipp",
    "model_descs",
    "model_execution",
    "media_memory",
    "media_pictures",
    "media_configs",
    "media_jpeg",
    "media_vpc",
    "media_vdec",
    "media_venc",
    "media_filters",
    "himpi_system",
    "himpi_vpc_channel",
    "himpi_vpc",
    "himpi_vpc_regions",
    "himpi_vpc_filters",
    "himpi_vpc_draw",
    "himpi_vpc_tables",
    "himpi_vpc_warp",
    "himpi_vdec",
    "himpi_colours",
    "himpi_pngd",
    "himpi_epoll",
    "himpi_venc",
    "himpi_venc_settings",
    "himpi_venc_regions",
    "himpi_refused",
    "operator_attributes",
    "operator_models",
    "operator_execution",
    "blas",
    "prof",
    "prof_marks",
    "prof_subscriptions",
    "stream_settings",
    "failures",
    "overflow",
    "dump",
    "notifies",
    "device_facts",
    "memory_facts",
    "virtual_memory",
    "ipc_memory",
    "groups",
    "feature_descriptions",
    "feature_search",
    "not_here",
)


def declared() -> dict[str, Callable[..., object]]:
    """Every function by its whole name: "acl.rt.malloc"."""
    for name in _FILES:
        importlib.import_module(f"anycann.acl.{name}")
    return {name: entry.call for name, entry in BORDER.entries.items()}


def fill(module: ModuleType) -> None:
    """Put every function into `module` ("acl") and the modules below it, which are made and found by `import acl.rt` too."""
    modules = {"acl": module}
    for name, call in declared().items():
        parent, _, short = name.rpartition(".")
        if parent not in modules:
            modules[parent] = ModuleType(parent, f"{parent} of AscendCL")
            sys.modules[parent] = modules[parent]
            setattr(module, parent.partition(".")[2], modules[parent])
        setattr(modules[parent], short, call)
    for name, made in modules.items():
        made.__getattr__ = _explain(name)  # type: ignore[method-assign]
    if settings.SANITIZE.get():
        from anycann.acl.sanitizer.watcher import enable

        enable()


def _explain(module: str) -> Callable[[str], object]:
    """What a name that is not there gets: an AttributeError that says what is near."""

    def missing(name: str) -> object:
        whole = f"{module}.{name}"
        if name.startswith("__"):
            raise AttributeError(whole)
        if name.isupper():
            raise AttributeError(f"{whole} is not there: pyACL has no constants; programs write the number themselves")
        near = difflib.get_close_matches(whole, BORDER.entries, n=1)
        raise AttributeError(f"{whole} is not a function of pyACL" + (f"; did you mean {near[0]}?" if near else ""))

    return missing
