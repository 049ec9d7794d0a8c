"""Child processes that begin in milliseconds: a server imports once what they need, and forks for each.

A test run has one such server, whoever asks first, so what it imports is said here for all: a child whose module the
server doesn't know imports everything anew.
"""

import multiprocessing

PRELOADED = ["tests.several", "tests.training.test_resume"]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(PRELOADED)
