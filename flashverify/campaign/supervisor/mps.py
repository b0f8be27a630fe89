"""NVIDIA's Multi-Process Service (MPS): kernels of processes that share a GPU run side by side in place of by turns.

A fault of one client is a fault of all clients on its GPU, and a client that is killed at work leaves the others undefined (NVIDIA,
"Multi-Process Service", limitations). So all that share a GPU end when one of them ends by itself, and start again with a service that
is new. Where that happens within a minute, each has a context of its own from then on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.child_process import VISIBLE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Mps", "control_program", "own_context"]

_PROGRAM = "nvidia-cuda-mps-control"
_FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin", "/opt/bin")
_FOLDER = "flashverify-mps-"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_SERVICE = Path("/tmp/nvidia-mps/control")
"""Where the service of a machine listens, which processes join unasked."""
_SECONDS = 30.0
_LASTING = 60.0
"""Seconds that a service has to last to be started again: workers that share begin again in some ten seconds, and judge twice as fast."""
_DAEMON = '"$0" -d || exit 1; echo started; read -r _; echo quit -t 2 | "$0"'
"""Its input ends when this process does, however that ends."""
_CLIENT = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
for code in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)):
    if code:
        raise SystemExit(f"CUDA error {code}")
"""


def control_program(environ: Mapping[str, str], service: Path = _SERVICE) -> str | None:
    """The program that starts the service; None where there is none, or where processes have a service already.

    Args:
        environ: of the process.
        service: where that of the machine listens.
    """
    if environ.get(_PIPES) or service.exists():
        return None
    return shutil.which(_PROGRAM, path=os.pathsep.join((environ.get("PATH", ""), *_FOLDERS)))


def own_context(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that shares no service of a campaign, as one that tries what may kill it."""
    ours = Path(environ.get(_PIPES, "")).name.startswith(_FOLDER)
    return {name: value for name, value in environ.items() if not ours or name not in (_PIPES, _LOGS)}


class Mps:
    """The service of one campaign, which starts when its variables are first asked for.

    Args:
        program: see `control_program`; None is no service.

    Attributes:
        problem: why a service that was to start did not, in words.
        lasted: whether it started and was not given up before the campaign ended.
        began: when the service that is at work did, in seconds of `time.monotonic`.
    """

    def __init__(self, program: str | None) -> None:
        self._program, self.problem, self.lasted, self.began = program, "", False, 0.0
        self._daemon: subprocess.Popen[str] | None = None
        self._folder = ""

    @property
    def shared(self) -> bool:
        """Whether the service is at work."""
        return self._daemon is not None

    def variables(self) -> dict[str, str]:
        """Those of its clients; none where there is no service."""
        if self._program is not None and self._daemon is None:
            self._start(self._program)
        return self._variables() if self.shared else {}

    def _variables(self) -> dict[str, str]:
        return {_PIPES: self._folder, _LOGS: self._folder}

    def _start(self, program: str) -> None:
        self._folder = tempfile.mkdtemp(prefix=_FOLDER)  # the names of sockets are short
        environ = {
            name: value for name, value in os.environ.items() if name != VISIBLE
        }  # clients choose among all GPUs
        try:
            self._daemon = subprocess.Popen(
                ("/bin/sh", "-c", _DAEMON, program),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environ | self._variables(),
                text=True,
                process_group=0,  # a Ctrl-C of the terminal ends the workers first
            )
            assert self._daemon.stdout is not None
            if self._daemon.stdout.readline() != "started\n":
                raise OSError(f"{program} -d did not start")
            subprocess.run(
                (sys.executable, "-I", "-S", "-c", _CLIENT),
                env=os.environ | self._variables(),
                check=True,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
            self.lasted, self.began = True, time.monotonic()
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or str(error)
            self.problem = (
                f"each worker has a context of its own: MPS does not work here: {' '.join(str(said).split())}"
            )
            self.close()

    def lost(self) -> bool:
        """A client ended by itself: the service ends, and starts again when its variables are next asked for; False where it is given up."""
        program, self.lasted = self._program, self.shared and time.monotonic() - self.began >= _LASTING
        self.close()
        self._program = program if self.lasted else None
        return self.lasted

    def close(self) -> None:
        """End the service, after its clients; it is not started again."""
        self._program = None
        if self._daemon is not None:
            with suppress(BrokenPipeError, OSError, subprocess.TimeoutExpired):
                self._daemon.communicate("", timeout=_SECONDS)
            if self._daemon.poll() is None:
                self._daemon.kill()
                self._daemon.wait()
            self._daemon = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""
