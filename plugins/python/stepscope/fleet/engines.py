"""Runs the ranks' tasks in processes of this machine or on the workers of a Ray cluster.

An engine takes tasks, the number of workers and the number of attempts. It yields (index of the task, answer) as tasks end.
"""

from __future__ import annotations

import os
import pathlib
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

from .._native import StepscopeError
from . import worker
from .worker import Answer, Task

Answers = Generator[tuple[int, Answer], None, None]
Engine = Callable[[Sequence[Task], "int | None", int], Answers]

PACKAGES = str(pathlib.Path(__file__).parents[2])  # the package's parent folder, for started processes
IN_FLIGHT = 4  # tasks given to Ray at once, per core: enough to keep it busy


class WorkerDied(Exception):
    pass


class Worker:
    """A process that does one task after the other. The first task starts it, and it is restarted after it has died.

    It is not a process of multiprocessing: those import the caller's __main__, which may not be importable, and if one process
    of a pool dies, all tasks of the pool fail.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def do(self, task: Task) -> Answer:
        """Raises WorkerDied with words that continue the sentence "the process ..."."""
        process = self._process = self._process or _start()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            process.kill()  # if it lives, its answers are useless
            status = process.wait()
            self.close()
            raise WorkerDied(_ending(status)) from None
        assert isinstance(answer, Answer)
        return answer

    def kill(self) -> None:
        """May be called on any thread: a do() in progress raises WorkerDied."""
        if process := self._process:
            process.kill()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()  # closes the pipes and waits


def _start() -> subprocess.Popen[bytes]:
    path = os.pathsep.join([PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])])
    # Not with -m: classes of a module started that way have another name, and cannot be unpickled here.
    return subprocess.Popen([sys.executable, "-c", f"from {worker.__name__} import main; main()"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})


def _ending(status: int) -> str:
    if status == -signal.SIGKILL:
        return "was killed (SIGKILL), as the system does where memory runs out"
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def local(tasks: Sequence[Task], workers: int | None, attempts: int) -> Answers:
    """Runs `workers` processes, by default one per core that this process may use."""
    waiting: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()  # (task, previous attempts)
    done: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
    stopped = threading.Event()
    for index in range(len(tasks)):
        waiting.put((index, 0))

    def serve(own: Worker) -> None:
        while True:
            index, before = waiting.get()
            if stopped.is_set():
                return
            try:
                done.put((index, own.do(tasks[index])))
            except WorkerDied as died:
                if before + 1 < attempts:
                    waiting.put((index, before + 1))
                else:
                    done.put((index, Answer(error=_given_up(tasks[index], attempts, f"the process that read it {died}"))))
            except Exception as error:  # otherwise this task would never be answered
                done.put((index, Answer(error=f"{tasks[index].path} could not be handed to a process: {error}")))

    processes = [Worker() for _ in range(min(len(tasks), workers or len(os.sched_getaffinity(0))))]
    threads = [threading.Thread(target=serve, args=(one,), daemon=True) for one in processes]
    for thread in threads:
        thread.start()
    try:
        for _ in tasks:
            yield done.get()
    finally:  # also if the caller stops early
        stopped.set()
        for _ in threads:
            waiting.put((0, 0))  # wakes a waiting thread
        for one, thread in zip(processes, threads):
            one.kill()
            thread.join()
            one.close()


def _given_up(task: Task, attempts: int, why: str) -> str:
    return f"{task.path} was given up after {attempts} attempt{'s' if attempts > 1 else ''}: {why}"


def ray(tasks: Sequence[Task], workers: int | None, attempts: int) -> Answers:
    """Uses the connected cluster, the one in RAY_ADDRESS, or one of `workers` processes started here."""
    try:
        import ray as cluster
    except ImportError:
        raise StepscopeError("engine='ray' needs the package ray: pip install 'stepscope[ray]'") from None
    started = not cluster.is_initialized()
    if started:
        cluster.init(**({} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers, "include_dashboard": False}))
    try:
        digest = cluster.remote(max_retries=attempts - 1)(worker.digest)  # retries after a worker's death, not after errors
        rest = iter(enumerate(tasks))
        flying: dict[Any, int] = {}
        most = IN_FLIGHT * max(1, int(cluster.cluster_resources().get("CPU", 1)))
        while True:
            while len(flying) < most and (following := next(rest, None)) is not None:
                flying[digest.remote(following[1])] = following[0]
            if not flying:
                return
            (ready,), _ = cluster.wait(list(flying))
            index = flying.pop(ready)
            try:
                yield index, cluster.get(ready)
            except cluster.exceptions.RayError as error:
                reason = str(error).strip().splitlines()[0]
                yield index, Answer(error=_given_up(tasks[index], attempts, reason))
    finally:
        if started:
            cluster.shutdown()


ENGINES: dict[str, Engine] = {"local": local, "ray": ray}
