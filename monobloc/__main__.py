"""`python -m monobloc`"""

from monobloc.cli import main

if __name__ == "__main__":
    main()
