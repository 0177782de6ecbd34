"""A piece of memory that two processes share: one writes, tells the other how much, and does not write before that one has
read it.

It has no name: it is a memfd (Linux) or a file that was unlinked as it was made, and its descriptor is inherited. So when
both processes are gone, however they ended, the kernel has freed it; nothing is left to be cleaned up by anybody.
multiprocessing.shared_memory makes named segments, which a SIGKILL leaves behind, in /dev/shm, of which a container has
64 MB by default.
"""

from __future__ import annotations

import mmap
import os
import tempfile

SMALLEST = 256 * 2**10  # bytes
SPARE_AFTER = 64  # writes, all of which would have fitted into a quarter, after which a block is made smaller


class Block:
    """Sized by what is written: a larger message makes it grow, many small ones make it smaller again.

    Args:
        fd: of a block that was made in the parent; None: make one.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = anonymous() if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, SMALLEST)
        self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)
        self._most, self._writes = 0, 0

    @property
    def size(self) -> int:
        return len(self._map)

    def write(self, content: bytes) -> int:
        """Put it there. Returns its length, which the reader has to be told."""
        length = len(content)
        self._most, self._writes = max(self._most, length), self._writes + 1
        if length > self.size:
            self._resize(_rounded(length))
        elif self._writes >= SPARE_AFTER:
            # The reader's map may be larger than the file then. It reads only what it is told of.
            if self.size > SMALLEST and self._most <= self.size // 4:
                self._resize(_rounded(self._most))
            self._most = self._writes = 0
        self._map[:length] = content
        return length

    def view(self, length: int) -> memoryview:
        """What was written; to be released before the next call here."""
        if length > self.size:
            self._remap()
        return memoryview(self._map)[:length]

    def peek(self, length: int) -> bytes:
        """What is at its beginning. On any thread; raises ValueError once it is closed."""
        return self._map[:length]

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)

    def _resize(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self._remap()

    def _remap(self) -> None:
        self._map.close()
        self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size)


def _rounded(length: int) -> int:
    return max(SMALLEST, 1 << (length - 1).bit_length())


def anonymous() -> int:
    """The descriptor of a new file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("millrace", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
