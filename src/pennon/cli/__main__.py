"""The entry point of the ``pennon`` command; an interrupt during its imports ends it without a traceback."""

import signal


def start() -> None:
    """Import the command line, then run it."""
    # Importing takes most of a second, and an interrupt would print a traceback through libraries.
    has_default_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if has_default_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pennon.cli.main import main

    if has_default_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    start()
