"""Run the property tests on random examples, with a fresh seed each round, until the time is up.

    python tests/helpers/fuzz.py --seconds 600 [arguments of pytest, such as a file or -k name]

A failure ends the run, after the round that it is in. The command that repeats the round is printed; the failing
example itself is in the output of pytest.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from hypothesis_profiles import FUZZ_DEADLINE


def property_tests() -> list[str]:
    """Return the files with property tests; collecting all files would take up to a minute in each round."""
    paths = sorted(Path(__file__).parents[1].rglob("test_*.py"))
    return [str(path) for path in paths if "hypothesis" in path.read_text()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="time after which no further test is started")
    arguments, selection = parser.parse_known_args()
    deadline = time.time() + arguments.seconds
    rounds = 0
    while time.time() < deadline:
        seed = random.SystemRandom().randrange(2**32)
        command = [sys.executable, "-m", "pytest", "-m", "hypothesis", "--hypothesis-profile=fuzz"]
        command += [f"--hypothesis-seed={seed}", *(selection or property_tests())]
        print(f"round {rounds + 1}, seed {seed}, {deadline - time.time():.0f} s left", flush=True)
        environment = os.environ | {FUZZ_DEADLINE: str(deadline)}
        status = subprocess.run(command, env=environment, check=False).returncode
        if status:
            print(f"failed; to repeat this round: {' '.join(command)}", flush=True)
            return status
        rounds += 1
    print(f"no failure in {rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
