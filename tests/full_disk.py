"""A disk that is full, for the files of this process."""

import contextlib
import resource
import signal


@contextlib.contextmanager
def full_at(size):
    """No file can grow beyond `size` bytes; the error is EFBIG, 'File too large'."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
