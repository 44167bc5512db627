"""acl.himpi: a function that is known and not done, with the code that a chip without it answers."""

from __future__ import annotations

from anycann.acl.codes import Code
from anycann.acl.entries import refused

refused("acl.himpi.vpc_set_chn_opt_attr", ("channel", "attribute"), "no attribute of this kind is documented", Code.HI_VPC_NOT_SUPPORT)
