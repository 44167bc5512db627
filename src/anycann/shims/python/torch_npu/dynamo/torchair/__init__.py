"""Another name of torchair."""

import sys

import torchair

sys.modules[__name__] = torchair
