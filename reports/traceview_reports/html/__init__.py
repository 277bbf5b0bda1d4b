"""The HTML report: one self-contained file that opens offline."""
