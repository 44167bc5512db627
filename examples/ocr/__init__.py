"""Reading the text in a picture with PP-OCR: `python -m examples.ocr --help`."""
