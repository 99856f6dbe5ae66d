"""Where the ``pennon`` command begins: an interrupt while its modules are loaded ends it quietly."""

import signal


def start() -> None:
    """Load the command line, then run it."""
    # Loading takes most of a second, and Python would answer an interrupt by a traceback through strangers' modules.
    loud = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if loud:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pennon.cli.main import main

    if loud:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    start()
