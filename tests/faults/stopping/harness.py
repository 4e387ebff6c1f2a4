"""Runs commands of remargin in forked processes that can kill themselves at any change of a file.

Run as a script this is a server: it imports all that the command line may need, computes nothing, and then forks a
child for each command that it reads from its standard input. So a command costs no imports, and a kill -9 is real.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

NEVER = 0
WATCHED, NETWORK = "REMARGIN_TESTS_WATCH_THE_NETWORK", "network:"
LOCAL = (None, "", "localhost", "127.0.0.1", "::1", b"localhost")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# What file operations are called by sys.audit, and which of their arguments are paths and the folders that they are in.
AUDITED = {
    "os.rename": ((0, 2), (1, 3)),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "shutil.rmtree": ((0, 1),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
}
# Functions that change files, or wait for the disk, without an audit event.
SILENT = (
    ("os", "fsync"),
    ("remargin.files.atomic", "_swapped"),
    ("safetensors.torch", "serialize_file"),
    ("faiss", "write_index"),
)
# What the verbs import only when they need it.
IMPORTED_LATE = (
    "Stemmer",
    "faiss",
    "ir_measures",
    "lightning_fabric.strategies.single_device",
    "pydantic.main",
    "pytrec_eval",
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert",
    "typer._adapters",
)


class Outcome(NamedTuple):
    """What came of a command.

    Attributes:
        code: the exit code; negative if a signal ended it.
        operations: the changes of files that it made or, the last one, was killed at.
        stdout, stderr: what it printed.
    """

    code: int
    operations: list[str]
    stdout: str
    stderr: str

    @property
    def killed(self) -> bool:
        """Whether it killed itself, as it was told to."""
        return self.code == -signal.SIGKILL


class Server:
    """A process that forks a child for each command.

    Args:
        watch_network: every attempt to reach another machine fails, and is among the operations of the outcome.
    """

    def __init__(self, watch_network: bool = False) -> None:
        import remargin

        source = str(Path(remargin.__file__).parents[1])  # the one that is tested, wherever another may be installed
        fixed = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": source, "PYTHONHASHSEED": "0"}
        if watch_network:
            fixed |= {"HF_HUB_OFFLINE": "0", WATCHED: "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **fixed},
        )

    def run(
        self,
        folder: Path,
        command: Sequence[str],
        kill_at: int = NEVER,
        kill_after: float | None = None,
        stdin: str = os.devnull,
    ) -> Outcome:
        """Run `remargin COMMAND` in a folder.

        Args:
            folder: the working folder; only changes of files in it count.
            command: the verb and its options.
            kill_at: the number of the change, from 1, just before which the process kills itself.
            kill_after: the seconds after which it does so, wherever it is.
            stdin: the file that is its standard input.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"folder": str(folder.resolve()), "command": list(command), "kill_at": kill_at}
        request |= {"kill_after": kill_after, "stdin": stdin}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class NoNetwork:
    """Fails every attempt to reach another machine, and writes it to a log."""

    def __init__(self, log: int) -> None:
        self._log = log

    def install(self) -> None:
        """Watch this process from now on."""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            host = address[0] if isinstance(address, tuple) else "localhost"  # else a socket in the file system
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            host = arguments[0]
        else:
            return
        if host not in LOCAL:
            os.write(self._log, f"{NETWORK} {host}\n".encode())
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))


class Killer:
    """Counts changes of files in a folder, writes each to a log, and ends the process at one of them.

    An `open` that makes or empties a file counts twice: a process can be killed before it, and after it, when the file
    is there but what it is to hold is not.
    """

    def __init__(self, folder: str, kill_at: int, log: int) -> None:
        self._folder, self._kill_at, self._log = folder, kill_at, log
        self._count = 0

    def install(self) -> None:
        """Watch this process from now on."""
        for module, name in SILENT:
            place = sys.modules.get(module)
            if hasattr(place, name):
                setattr(place, name, self._counted(getattr(place, name), name))
        sys.addaudithook(self._audit)

    def _counted(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._change_of(name, [self._path(given) for given in arguments if isinstance(given, int | str | Path)])
            return function(*arguments, **options)

        return counted

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[2] & WRITING:
            path = self._path(arguments[0])
            if path is not None:
                self._change(f"open {path}")
                if arguments[2] & (os.O_CREAT | os.O_TRUNC):
                    self._change(f"opened {path}", lambda: os.close(os.open(path, arguments[2], 0o666)))
        elif event in AUDITED:
            given = [
                (arguments[place], None if folder is None else arguments[folder]) for place, folder in AUDITED[event]
            ]
            self._change_of(event, [self._path(*of_path) for of_path in given])

    def _path(self, path: Any, descriptor: int | None = None) -> str | None:
        """The absolute path, if it is in the folder that is watched."""
        if isinstance(path, int):
            whole = str(_path_of(path))
        else:
            start = Path.cwd() if descriptor in (None, -1) else _path_of(descriptor)
            whole = os.path.normpath(start / os.fsdecode(path))
        return whole if whole.startswith(self._folder + "/") else None

    def _change_of(self, what: str, paths: list[str | None]) -> None:
        if any(paths):
            self._change(f"{what} {' '.join(map(str, paths))}")

    def _change(self, what: str, done: Callable[[], None] | None = None) -> None:
        """Count a change, and end the process if it is the one; with `done`, after that has been done."""
        os.write(self._log, f"{what.replace(self._folder + '/', '')}\n".encode())
        self._count += 1
        if self._count == self._kill_at:
            if done is not None:
                done()
            os.kill(os.getpid(), signal.SIGKILL)


def _path_of(descriptor: int | None) -> Path:
    """The file or folder that is open under a number."""
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def _run(folder: str, command: list[str], kill_at: int, kill_after: float | None, stdin: str, logs: list[int]) -> int:
    """The life of a child. `logs` are for what it prints and for the changes that it makes."""
    from remargin.cli import main

    os.chdir(folder)
    for stream, log in zip((0, 1, 2), (os.open(stdin, os.O_RDONLY), *logs), strict=False):
        os.dup2(log, stream)
    sys.argv = ["remargin", *command]
    if os.environ.get(WATCHED):
        NoNetwork(logs[2]).install()
    Killer(folder, kill_at, logs[2]).install()
    if kill_after is not None:
        threading.Timer(kill_after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _serve() -> None:
    """Answer each line of standard input, a request, by a line of standard output, an `Outcome`."""
    _import_everything()
    gc.freeze()  # what children share with this process is not to be copied
    for line in sys.stdin:
        with contextlib.ExitStack() as stack:
            logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            child = os.fork()
            if child == 0:
                os._exit(_run(**json.loads(line), logs=[log.fileno() for log in logs]))
            _, status = os.waitpid(child, 0)
            texts = []
            for log in logs:
                log.seek(0)
                texts.append(log.read().decode(errors="replace"))
        outcome = Outcome(os.waitstatus_to_exitcode(status), texts[2].splitlines(), *texts[:2])
        print(json.dumps(outcome._asdict()), flush=True)


def _import_everything() -> None:
    import remargin
    from remargin.retrieval.bm25 import _bm25s
    from remargin.training.away import standard_library

    for module in pkgutil.walk_packages(remargin.__path__, "remargin."):
        if not module.name.startswith(("remargin.model.kernels", "remargin.__main__")):
            importlib.import_module(module.name)
    for name in IMPORTED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _bm25s()
    standard_library(0)  # docstrings on which `fit` measures forgetting: to parse them takes longer than all else


if __name__ == "__main__":
    _serve()
