"""Programs that use AnyCANN. Run them from the root of the repository: `python -m examples.ocr`."""
