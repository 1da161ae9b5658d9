"""`python -m pcfi.cli` is the command `pcfi`."""

from pcfi.cli import main

if __name__ == "__main__":
    main()
