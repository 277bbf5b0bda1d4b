"""Readers: trace files in, the declared tables of traceview.schema out."""
