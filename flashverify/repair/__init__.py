"""What makes a failing subject right: one change of its source, found by trying.

functions.py   what ran on the failing case      operators/     how one line may be wrong
suspicion.py   where to look first               candidates.py  the edits of a function
exchange.py    an edit in a running process      copies.py      all edits of a function in one copy of it
probing.py     which of them change anything     pool.py        which edit comes next
bench.py       what it does on the failing case  judges.py      what it does on others
described.py   what is said of it                own.py         which files are looked at
tracing.py     what a trace sees                 kinds.py       which names may stand for which
family.py      how others write the same         confinement.py what an edit may not do
influence.py   what a statement reaches          search.py      all of it
placing.py     a stored repair in a text         again.py       and in place once more
"""
