"""Runs cases in a process of its own: a name a line comes in, an outcome a line goes out, so that a crash loses one case."""

from __future__ import annotations

from dataclasses import asdict
import json
import sys
import time
import warnings

from onnx_cases import Outcome, all_cases, run_case


def main() -> None:
    results, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, began = line.strip(), time.perf_counter()
        try:
            native, error = run_case(all_cases()[name]), ""
        except Exception as failure:
            native, error = False, f"{type(failure).__name__}: {' '.join(str(failure).split())[:300]}"
        outcome = Outcome(name, error, native, time.perf_counter() - began)
        print(json.dumps(asdict(outcome)), file=results, flush=True)


if __name__ == "__main__":
    main()
