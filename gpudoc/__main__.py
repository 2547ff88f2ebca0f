"""`python -m gpudoc`, the same as the installed command."""

from gpudoc.cli.app import main

if __name__ == "__main__":
    main()
