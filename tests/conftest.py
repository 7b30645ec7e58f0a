"""How tests behave on a busy machine: slowness is no failure; pytest-timeout ends what hangs; matrix products keep to one thread."""

import os

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # as in every session of kit: the oracle's products are small, and threads would wait

from hypothesis import HealthCheck, settings

settings.register_profile("kit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kit")
