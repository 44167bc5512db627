"""`import acl`: AscendCL for Python, by AnyCANN."""

import sys

from anycann.acl.namespace import fill

fill(sys.modules[__name__])
