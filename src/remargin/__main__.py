"""Lets `python -m remargin` stand for `remargin`."""

from remargin.cli import main

main()
