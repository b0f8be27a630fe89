"""Ring attention as a subject: `subject.py` hands problems to rank processes, which `pool.py` keeps; `host.py` and `rank.py` run in them."""
