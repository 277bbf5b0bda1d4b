"""Print the README's commands: the lines of its fenced blocks marked ``sh run``."""

import re
import sys
from pathlib import Path

for block in re.findall(r"^```sh run\n(.*?)^```", Path(sys.argv[1]).read_text(), re.MULTILINE | re.DOTALL):
    print(block.strip())
