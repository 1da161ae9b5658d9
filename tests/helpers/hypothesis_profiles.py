"""Profiles of hypothesis: the same examples in every run (the default), few of them, or random ones (`make fuzz`)."""

from hypothesis import HealthCheck, settings

FUZZ_DEADLINE = "PCFI_FUZZ_DEADLINE"  # environment variable: seconds since the epoch

settings.register_profile("fixed", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", settings.get_profile("fixed"), max_examples=10)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=500,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def examples(count: int) -> settings:
    """Run a property test on `count` examples, or in proportion to the number of the profile if that is not 100."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 100))
