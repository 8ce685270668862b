"""`python -m apas`: the same as the command `apas`."""

from apas.cli import main

if __name__ == "__main__":
    main()
