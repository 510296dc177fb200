"""Work that does not share anything, several pieces at once: each in a process of one thread."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Asked = TypeVar("Asked")
Given = TypeVar("Given")


def in_processes(
    call: Callable[[Asked], Given], asked: Sequence[Asked], processes: int
) -> Iterator[tuple[Asked, Given]]:
    """`(asked, call(asked))`, each when it is done; here, in order, where it is one process or one piece.

    Those not begun are dropped where the caller stops, or one raises.
    """
    if processes == 1 or len(asked) < 2:
        yield from ((one, call(one)) for one in asked)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_one_thread)
    try:
        waiting = {pool.submit(call, one): one for one in asked}
        for future in as_completed([*waiting]):
            yield waiting.pop(future), future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
