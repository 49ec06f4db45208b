"""`python -m hpckit`, for machines where the console script is not on PATH."""

from hpckit.cli import main

if __name__ == "__main__":
    main()
