"""How generated tests behave on a busy machine: slowness is no failure; pytest-timeout ends what hangs."""

from hypothesis import HealthCheck, settings

settings.register_profile("kit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kit")
