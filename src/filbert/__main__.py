"""`python -m filbert` is `filbert`."""

from filbert.cli.main import main

if __name__ == "__main__":
    main()
