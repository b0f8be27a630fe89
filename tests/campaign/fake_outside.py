"""Stands for the process that runs a subject outside its declaration: five cases, of which one hangs and one kills the process."""

import json
import os
import sys
import time

asked = json.load(sys.stdin)
if asked["subject"] == "unknown":
    sys.exit("there is no such subject")
for case, outcome in (("a", "right"), ("b", "hung"), ("c", "wrong"), ("d", "died"), ("e", "refused")):
    if case in asked["done"]:
        continue
    print(json.dumps({"type": "Begun", "case": case, "property": "dtype=fp32"}), flush=True)
    if outcome == "hung":
        time.sleep(1000)
    if outcome == "died":
        os._exit(9)
    print(json.dumps({"type": "Ended", "outcome": outcome, "message": ""}), flush=True)
