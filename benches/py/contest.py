"""A Python contestant: the counterpart of benches/src/contest.rs.

Prints `ready VERSION`, then answers each input line with numbers or `n/a REASON`.
"""

import sys
import time


def one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())


def contend(start):
    """`start()` returns a version and a function from a request's words to numbers."""
    try:
        version, answer = start()
    except Exception as error:  # usually a missing module
        print("n/a", one_line(error), flush=True)
        return
    print("ready", version, flush=True)
    for line in sys.stdin:
        try:
            print(*answer(line.split()), flush=True)
        except Exception as error:
            print("n/a", one_line(error), flush=True)


def timed(clock, work):
    """The time of `work` in seconds: wall time, and by `clock`."""
    wall, cpu = time.perf_counter(), clock()
    work()
    return time.perf_counter() - wall, clock() - cpu
