"""moto's server, limited to one SQS request at a time. Its queues are not thread-safe: otherwise one deletion may undo
another, and two receivers may get the same message.
"""

import functools
import sys
import threading

from moto.server import main
from moto.sqs.models import Queue, SQSBackend

lock = threading.RLock()


def alone(method):
    @functools.wraps(method)
    def locked(*args, **kwargs):
        with lock:
            return method(*args, **kwargs)

    return locked


for name in [name for name in vars(SQSBackend) if name.endswith(("_message", "_batch", "_visibility", "_attributes"))]:
    setattr(SQSBackend, name, alone(getattr(SQSBackend, name)))

wait_for_messages = Queue.wait_for_messages


def wait_aside(queue, timeout):
    """Who waits for a message lets the others work."""
    lock.release()
    try:
        wait_for_messages(queue, timeout)
    finally:
        lock.acquire()


Queue.wait_for_messages = wait_aside
main()
