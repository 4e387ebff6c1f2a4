"""The program: `remargin`, and `python -m remargin`. Ctrl-C works from the first moment, without a traceback."""


def main() -> None:
    """Load the command line and run it."""
    import os
    import signal

    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    from remargin.cli import main as run

    run()


if __name__ == "__main__":
    main()
