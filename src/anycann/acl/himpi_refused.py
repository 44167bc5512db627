"""acl.himpi: a function that is known and not done, with the code that a chip without it answers."""

from __future__ import annotations

from anycann.acl.codes import Code
from anycann.acl.entries import refused

_NOWHERE = "Ascend documents it as not supported by any chip"
refused("acl.himpi.vpc_set_chn_opt_attr", ("channel", "attribute"), _NOWHERE, Code.HI_VPC_NOT_SUPPORT)
