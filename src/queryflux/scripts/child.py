"""The child process that runs users' scripts. A program of its own: it is started by its path and needs
nothing of QueryFlux, so that it starts fast and stays small.

Messages are JSON, each after its length in four bytes. First ``{"scripts": [[name, function, number of its
arguments, text], ...]}`` with the limits, answered by ``{"problems": [null or {"error", "line"}, ...]}``.
Then ``[script, [argument, ...]]``, each answered by ``{"value"}`` or ``{"error", "line"}``, with what was
printed in ``output``. A call that takes too long ends the process by a timer of its own, which needs nobody
outside; so does the end of its input, and on Linux the end of whoever started it, also while a script hangs.
"""

import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

LENGTH = struct.Struct(">I")
_PROCESSES = frozenset(
    ("os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system", "subprocess.Popen")
)
_MAX_FILES = 256
_MOST_DESCRIPTORS = 1 << 20
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of linux/prctl.h."""
_TAKES_MORE = 0x04
"""Flag of a function with *args."""
_KEPT_ERROR = 500


class Printed:
    """What scripts print, as far as it is kept; a file as far as ``print`` needs one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        """Keep it, or as much of it as there is room for."""
        room = self._limit - self._size
        if room > 0:
            self._parts.append(text[:room])
            self._size += len(text)
        return len(text)

    def flush(self) -> None:
        """Nothing to do."""

    def take(self) -> str:
        """What was printed since the last time."""
        text = "".join(self._parts)
        self._parts, self._size = [], 0
        return text


class Scripts:
    """Compiled scripts, each a module of its own."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._call_secs: float = settings["call_secs"]
        self._max_result: int = settings["max_result"]
        self._printed = Printed(settings["max_output"])
        sys.stdout = sys.stderr = self._printed
        self._functions: list[Callable[..., Any]] = []

    def compile(self, scripts: list[tuple[str, str, int, str]]) -> dict[str, Any]:
        """Run each text once, for the function it defines."""
        problems = []
        for number, (name, function, arguments, text) in enumerate(scripts):
            problem = None
            try:
                made = self._function(f"script_{number}", f"<{name}>", function, text)
                _check_arguments(made, function, arguments)
                self._functions.append(made)
            except WrongFunction as error:
                problem = {"error": str(error), "line": None}
            except BaseException as error:
                problem = _told(error, f"<{name}>")
            problems.append(problem)
        return {"problems": problems, "output": self._printed.take()}

    def _function(self, module_name: str, file: str, name: str, text: str) -> Callable[..., Any]:
        module = ModuleType(module_name)
        module.__dict__["__file__"] = file
        sys.modules[module_name] = module
        exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what we are for
        function: Callable[..., Any] | None = module.__dict__.get(name)
        if function is None or not callable(function):
            raise WrongFunction(f"it defines no function {name}")
        return function

    def call(self, script: int, arguments: list[Any]) -> bytes:
        """One call, as the reply to send. Ends the process when it takes too long."""
        function = self._functions[script]
        signal.setitimer(signal.ITIMER_REAL, self._call_secs)
        try:
            value = function(*arguments)
            data = json.dumps({"value": value}).encode()
            if len(data) > self._max_result:
                reply = {"error": f"its result is larger than {self._max_result} bytes", "line": None}
                data = json.dumps(reply).encode()
        except MemoryError:
            raise
        except BaseException as error:
            file = function.__globals__.get("__file__", "") if hasattr(function, "__globals__") else ""
            data = json.dumps(_told(error, file)).encode()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        output = self._printed.take()
        return data[:-1] + b', "output": ' + json.dumps(output).encode() + b"}" if output else data


class WrongFunction(Exception):
    """A script does not define the function that is called."""


def _check_arguments(function: Callable[..., Any], name: str, count: int) -> None:
    """As far as can be seen of a plain function. Raises WrongFunction."""
    code = getattr(function, "__code__", None)
    if code is not None:
        needed = code.co_argcount - len(getattr(function, "__defaults__", None) or ())
        if needed > count or (code.co_argcount < count and not code.co_flags & _TAKES_MORE):
            raise WrongFunction(f"its function {name} does not take {count} arguments")


def _told(error: BaseException, file: str) -> dict[str, Any]:
    """An exception as a reply, with the line of the script that it came from."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == file else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:
        said = ""
    kind = type(error).__name__
    return {"error": f"{kind}: {said}"[:_KEPT_ERROR] if said else kind, "kind": kind, "line": line}


def _refuse_processes(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in _PROCESSES:
        raise PermissionError("scripts may not start processes")


def _alone() -> None:
    """Have nothing of the process that started this one but the conversation, which not every way of
    starting sees to, and do not outlive it."""
    os.closerange(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MOST_DESCRIPTORS))
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):  # a Python without ctypes: the timer is left
            import ctypes

            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def _own_streams() -> tuple[int, int]:
    """The two ends of the conversation, out of the way of whoever reads or writes 0, 1 and 2."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    return source, sink


def _read(source: int, size: int) -> bytes:
    """So many bytes. Ends the process when the input does."""
    parts = []
    while size:
        part = os.read(source, min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(sink: int, data: bytes) -> None:
    rest = memoryview(LENGTH.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def _limit(what: int, most: int) -> None:
    """No more than ``most``, or than there is already."""
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def main() -> NoReturn:
    """Compile what comes first, then answer calls until the input ends."""
    _alone()
    source, sink = _own_streams()
    settings = json.loads(_read(source, LENGTH.unpack(_read(source, LENGTH.size))[0]))
    if os.getppid() != settings["parent"]:  # it was gone before it could be seen to go
        os._exit(0)
    memory = settings["memory_bytes"]
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _MAX_FILES)
    sys.addaudithook(_refuse_processes)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    scripts = Scripts(settings)
    try:
        signal.setitimer(signal.ITIMER_REAL, settings["compile_secs"])
        compiled = scripts.compile(settings["scripts"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(sink, json.dumps(compiled).encode())
        while True:
            data = _read(source, LENGTH.unpack(_read(source, LENGTH.size))[0])
            number, arguments = json.loads(data)
            _send(sink, scripts.call(number, arguments))
    except MemoryError:
        # What a script keeps may be most of what there is: a fresh process has it all.
        _send(sink, b'{"error": "MemoryError", "kind": "MemoryError", "line": null}')
    os._exit(1)


if __name__ == "__main__":
    main()
