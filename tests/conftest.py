"""What holds for every test: skips are accounted for, and GPU tests run only where a GPU is."""

from __future__ import annotations

import shutil

pytest_plugins = ["skips"]

collect_ignore = [] if shutil.which("nvidia-smi") else ["gpu"]
