"""What a server of processes imports last (`regard.data.parallel.start_server`): it has not heard Ctrl-C
while it imported the rest, and ignores it from now on, so the processes that are made of it can hear
it again. They may be others than regard's: a program has one such server."""

import signal

if hasattr(signal, "pthread_sigmask"):  # not on Windows, which has no such server
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what came meanwhile is forgotten
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, heard)
