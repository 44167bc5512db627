"""AscendCL as a program sees it: `acl` from the shims, initialised, with a context; what a test leaves is cleared."""

from __future__ import annotations

from collections.abc import Iterator
import sys
from types import ModuleType

import pytest

import anycann
from anycann.acl.model_loading import MODELS
from anycann.acl.process import PROCESS
from tests.acl.media_calls import Dvpp
from tests.acl.video_calls import Reporter

SHIMS = f"{next(iter(anycann.__path__))}/shims/python"


@pytest.fixture(scope="session")
def acl_module() -> ModuleType:
    sys.path.insert(0, SHIMS)
    try:
        import acl
    finally:
        sys.path.remove(SHIMS)
    return acl


@pytest.fixture
def acl(acl_module: ModuleType) -> Iterator[ModuleType]:
    if PROCESS.references:  # a test of another folder left it so, as those of aclruntime do
        assert acl_module.finalize() == 0
    assert acl_module.init() == 0
    assert acl_module.rt.set_device(0) == 0
    yield acl_module
    MODELS.clear()
    for allocation in PROCESS.allocations.live():
        PROCESS.allocations.release(allocation.address)
        if allocation.device >= 0:
            PROCESS.devices[allocation.device].give_back(allocation.nbytes)
    acl_module.rt.reset_device_force(0)
    acl_module.finalize()
    PROCESS.handles.clear()


@pytest.fixture
def mpi(acl: ModuleType) -> Iterator[ModuleType]:
    assert acl.himpi.sys_init() == 0
    yield acl.himpi
    acl.himpi.sys_exit()
    for number in range(8):
        acl.himpi.vpc_destroy_chn(number)
        acl.himpi.vdec_destroy_chn(number)
        acl.himpi.pngd_destroy_chn(number)
        acl.himpi.venc_destroy_chn(number)


@pytest.fixture
def dvpp(acl: ModuleType) -> Dvpp:
    stream, _ = acl.rt.create_stream()
    channel = acl.media.dvpp_create_channel_desc()
    assert acl.media.dvpp_create_channel(channel) == 0
    return Dvpp(acl, channel, stream)


@pytest.fixture
def reporter(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reporter]:
    monkeypatch.setattr("anycann.acl.media_reports.PATIENCE_S", 600)  # a busy machine may let it wait long
    made = Reporter(acl)
    yield made
    made.stop()
