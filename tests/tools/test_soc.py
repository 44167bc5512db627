"""Names of chips."""

from __future__ import annotations

import pytest

from anycann.support.errors import UsageError
from anycann.target.soc import SOC_VERSIONS, nearest, soc_version


def test_no_name_and_host_are_this_machine() -> None:
    assert soc_version("") is soc_version("host")
    assert soc_version("").precision_mode == "must_keep_origin_dtype"


def test_every_chip_defaults_to_half_precision() -> None:
    assert all(soc_version(name).precision_mode == "force_fp16" for name in SOC_VERSIONS if name != "host")


def test_chips_of_the_910b_series_compute_in_bfloat16_and_older_ones_do_not() -> None:
    assert soc_version("Ascend910B4").bfloat16
    assert not soc_version("Ascend910A").bfloat16
    assert not soc_version("Ascend310P3").bfloat16


@pytest.mark.parametrize(("wrong", "right"), [("310P3", "Ascend310P3"), ("ascend910b4", "Ascend910B4"), ("Asend310B1", "Ascend310B1")])
def test_a_wrong_name_finds_the_nearest(wrong: str, right: str) -> None:
    assert nearest(wrong) == right
    with pytest.raises(UsageError, match=f"did you mean {right}"):
        soc_version(wrong)


def test_a_name_like_none_lists_what_is_accepted() -> None:
    assert nearest("Turing") is None
    with pytest.raises(UsageError, match=r"accepted: host, Ascend310, "):
        soc_version("Turing")
