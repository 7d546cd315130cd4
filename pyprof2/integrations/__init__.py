"""Record some steps from inside a training: plain loops, and the trainers that people use.

- `pyprof2.record`, a context manager for plain loops;
- `pyprof2.integrations.transformers.RecordCallback`, for the Trainer of Hugging Face;
- `pyprof2.integrations.lightning.RecordCallback`, for the Trainer of Lightning;
- `pyprof2.integrations.accelerate.RecordTracker`, for loops with an Accelerator;
- the environment variable `PYPROF2`, for scripts that only import pyprof2, or one of the above.

Each module imports the package that it is for, so import the one that you need.
"""

from __future__ import annotations
