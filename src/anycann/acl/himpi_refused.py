"""acl.himpi: functions that are known and not done, each with the code that a chip without it answers."""

from __future__ import annotations

from anycann.acl.codes import Code
from anycann.acl.entries import refused

_ENCODING = "maps of quantisation are not used"
_VPC = {
    "draw_osd": "use acl.himpi.vpc_draw_cover, or draw on the host",
    "set_chn_opt_attr": "a channel has no attributes of this kind",
}
_VENC = ("get_qpmap_stride", "get_qpmap_size")
_GIVES_ONE = ("get_", "query_", "calc_", "equalize_")  # a value before the code, as the functions that are there


def _declare(name: str, why: str, code: Code, task: bool) -> None:
    gives = task or name.split("_", 1)[1].startswith(_GIVES_ONE)
    refused(f"acl.himpi.{name}", ("arguments",), why, code, failed=(0,) if gives else ())


for _name, _why in _VPC.items():
    _declare(f"vpc_{_name}", _why, Code.HI_VPC_NOT_SUPPORT, task=not _name.startswith("set_"))
for _name in _VENC:
    _declare(f"venc_{_name}", _ENCODING, Code.HI_VENC_NOT_SUPPORT, task=False)
