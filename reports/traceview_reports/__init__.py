"""Reports: a Result in; terminal text, Markdown, HTML out. Reports never compute."""
