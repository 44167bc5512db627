"""What public programs rely on beside the documented calls."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
import weakref

import pytest


class Resource:
    """Stands for what programs release in a destructor."""


@pytest.mark.parametrize("fails", ["free", "load_from_file", "load a file that is none", "get_input_index_by_name"])
def test_a_call_that_fails_does_not_keep_the_variables_of_its_caller(acl: ModuleType, tmp_path: Path, fails: str) -> None:
    calls = {
        "free": lambda: acl.rt.free(12345),
        "load_from_file": lambda: acl.mdl.load_from_file(str(tmp_path / "none.om"))[1],
        "load a file that is none": lambda: acl.mdl.load_from_file(__file__)[1],
        "get_input_index_by_name": lambda: acl.mdl.get_input_index_by_name(acl.mdl.create_desc(), "x")[1],
    }

    def program() -> weakref.ref[Resource]:
        resource = Resource()
        assert calls[fails]() != 0
        return weakref.ref(resource)

    assert program()() is None


def test_memory_of_dvpp_is_freed_by_the_runtime_too(acl: ModuleType) -> None:
    """As the sample that resizes, classifies and takes the best class: its model frees the picture that dvpp made."""
    picture, ret = acl.media.dvpp_malloc(64)
    assert (ret, acl.rt.free(picture), acl.media.dvpp_free(picture)) == (0, 0, 107000)
    taken, _ = acl.rt.malloc(64, 0)
    assert acl.media.dvpp_free(taken) != 0


def test_functions_without_parameters_take_no_notice_of_arguments(acl: ModuleType) -> None:
    """Programs give a device number to acl.rt.get_device and acl.rt.synchronize_device."""
    assert acl.rt.get_device(0) == (0, 0)
    assert acl.rt.synchronize_device(0) == 0
    with pytest.raises(TypeError, match="2 arguments; accepted: 1"):
        acl.rt.set_device(0, 0)
