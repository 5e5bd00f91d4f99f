"""`python -m paxosblock` is the `paxosblock` command."""

from paxosblock.cli.main import main

if __name__ == "__main__":
    main()
