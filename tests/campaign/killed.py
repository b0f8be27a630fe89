"""A campaign in a process of its own that SIGKILL ends at a chosen result, however fast the machine is."""

import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_CODE = """
import json, os, pickle, signal, sys
sys.path[:0] = json.loads(sys.argv[1])
from flashverify.campaign.supervisor.engine import Engine
config, left, failing = pickle.load(sys.stdin.buffer)
engine = Engine(config)
append = engine.store.append

def appended(result):
    global left
    append(result)
    left -= bool(result.failures) or not failing
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

engine.store.append = appended
engine.run()
"""


def killed_after(results, config, *, failing=False):
    """Run the campaign of `config` until so many results, or results that fail, are on the disk, and kill it in that moment."""
    path = json.dumps([str(_HERE), *[p for p in sys.path if p]])
    given = pickle.dumps((config, results, failing))
    done = subprocess.run([sys.executable, "-c", _CODE, path], input=given, capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stderr.decode()[-2000:])
