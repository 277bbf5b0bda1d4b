"""discover -> read -> steps -> match -> align -> attribute -> Result: the Python API behind the command line."""
