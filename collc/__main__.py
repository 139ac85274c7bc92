"""`python -m collc`."""

from collc.cli import main

main()
