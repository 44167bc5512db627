"""`python -m ais_bench.infer`."""

import sys

from anycann.tools.ais_bench.main import main

if __name__ == "__main__":
    sys.exit(main())
