"""What a process tells its malloc and its threads, instead of environment variables set before it."""

import ctypes
import os
import platform
import sys

# Numbers of glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
LARGEST = 2**31 - 1
GROW_BY = 256 * 2**20

SPIN = "1000"


def keep_freed_memory() -> bool:
    """Tells malloc to reuse large blocks; returns whether this system has such a malloc.

    A step asks for the same large blocks again and again, and glibc would give each back to the system at once: then
    every step pays for the page faults (measured: 9,500 a step instead of 205, and a fifth of the time).
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(
        mallopt(option, value) == 1 for option, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, LARGEST), (TOP_PAD, GROW_BY))
    )


def give_back_freed_memory() -> bool:
    """Gives what is free between malloc's blocks back to the system; returns whether this system has such a malloc.

    A recorded run keeps a block of every layer between blocks that it let go of (measured: 0.6 GB beside 0.6 kept).
    """
    return platform.libc_ver()[0] == "glibc" and ctypes.CDLL(None).malloc_trim(0) == 1


def let_waiting_threads_sleep() -> bool:
    """Makes threads that wait for others sleep soon; returns whether there was still time, before torch is loaded.

    By default they spin for milliseconds, which on a machine that has other work takes the processor from the very
    thread they wait for (measured with two threads on two busy cores: 4 to 15 thousand tokens/s instead of 37).
    """
    if "torch" in sys.modules:
        return False
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN)
    return True
