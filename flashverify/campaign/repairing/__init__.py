"""`flashverify repair`: one change of a subject's source with which it is right on a failing case.

record.py    what the command and its process say to each other    child.py   the process that tries the edits
asking.py    the process, started and asked                         patch.py   a repair as a patch of its file
words.py     the answer in a terminal                               stored.py  the finding that a folder holds
"""
