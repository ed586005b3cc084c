"""The memories that a kernel sees, with all that may go wrong in them checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

Allocations = Callable[[], Iterable[tuple[int, np.ndarray]]]  # address and bytes of each


class MemoryFault(AssertionError):
    """An access that a GPU would punish, or that means a race."""


class GlobalMemory:
    """Device memory: allocations of a fake driver; an access must lie in one of them."""

    def __init__(self, allocations: Allocations) -> None:
        found = sorted(allocations(), key=lambda one: one[0])
        self._raw = [raw for _, raw in found]
        self._starts = np.array([address for address, _ in found] or [0], np.int64)
        self._ends = np.array([a + raw.size for a, raw in found] or [0], np.int64)

    def _locate(self, addresses: np.ndarray, size: int) -> np.ndarray:
        check_alignment(addresses, size)
        places = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (places >= 0) & (addresses + size <= self._ends[places])
        if not inside.all():
            raise MemoryFault(f"{size} bytes at {hex(addresses[~inside][0])} are not allocated")
        return places

    def load(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Return (lanes, size) bytes."""
        out = np.empty((len(addresses), size), np.uint8)
        places = self._locate(addresses, size)
        for place in np.unique(places):
            here = places == place
            offsets = addresses[here] - self._starts[place]
            out[here] = self._raw[place][offsets[:, None] + np.arange(size)]
        return out

    def store(self, addresses: np.ndarray, data: np.ndarray) -> None:
        places = self._locate(addresses, data.shape[1])
        for place in np.unique(places):
            here = places == place
            offsets = addresses[here] - self._starts[place]
            self._raw[place][offsets[:, None] + np.arange(data.shape[1])] = data[here]


class SharedMemory:
    """Shared memory of several blocks. Between two barriers no warp may read what another wrote,
    or write what another read or wrote: on a GPU either may be first."""

    def __init__(self, blocks: int, size: int) -> None:
        self.size = size
        self._bytes = np.zeros(blocks * size, np.uint8)
        self._written = np.zeros(blocks * size, bool)
        # The span between barriers, counted from 1, in which a byte was last touched, and by which
        # warp: -1 if by several.
        self._spans = np.ones(blocks, np.int64)
        self._write_span, self._read_span = (np.zeros(blocks * size, np.int64) for _ in "wr")
        self._write_warp, self._read_warp = (np.zeros(blocks * size, np.int64) for _ in "wr")

        # Of each block: places that copies under way will write, and groups of such copies.
        self._open: list[list[np.ndarray]] = [[] for _ in range(blocks)]
        self._groups: list[list[np.ndarray]] = [[] for _ in range(blocks)]

    def start_copy(
        self, addresses: np.ndarray, data: np.ndarray, blocks: np.ndarray, warps: np.ndarray
    ) -> None:
        """Store what nobody may read before `wait_copies`."""
        self.store(addresses, data, blocks, warps)
        places = self._places(addresses, data.shape[1], blocks)
        self._written[places] = False
        for block in np.unique(blocks):
            self._open[block].append(places[blocks == block].reshape(-1))

    def commit_copies(self, blocks: np.ndarray) -> None:
        for block in blocks:
            none = [np.zeros(0, np.int64)]
            self._groups[block].append(np.concatenate(self._open[block] or none))
            self._open[block] = []

    def wait_copies(self, blocks: np.ndarray, left: int) -> None:
        """Complete all groups of copies but the last `left`."""
        for block in blocks:
            while len(self._groups[block]) > left:
                places = self._groups[block].pop(0)
                self._written[places] = True
                self._write_span[places] = self._spans[block]

    def pass_barrier(self, blocks: np.ndarray) -> None:
        self._spans[blocks] += 1

    def _places(self, addresses: np.ndarray, size: int, blocks: np.ndarray) -> np.ndarray:
        check_alignment(addresses, size)
        if (addresses < 0).any() or (addresses + size > self.size).any():
            raise MemoryFault(
                f"bytes {addresses.min()} to {addresses.max() + size} of {self.size} shared ones"
            )
        return (blocks * self.size + addresses)[:, None] + np.arange(size)

    def load(
        self, addresses: np.ndarray, size: int, blocks: np.ndarray, warps: np.ndarray
    ) -> np.ndarray:
        places, span = self._places(addresses, size, blocks), self._spans[blocks][:, None]
        warps = warps[:, None]
        if not self._written[places].all():
            raise MemoryFault("shared memory is read that nobody wrote")
        if ((self._write_span[places] == span) & (self._write_warp[places] != warps)).any():
            raise MemoryFault("a race: a warp reads shared memory that another has just written")
        again = (self._read_span[places] == span) & (self._read_warp[places] != warps)
        self._read_warp[places] = np.where(again, -1, warps)
        self._read_span[places] = span
        return self._bytes[places]

    def store(
        self, addresses: np.ndarray, data: np.ndarray, blocks: np.ndarray, warps: np.ndarray
    ) -> None:
        places, span = self._places(addresses, data.shape[1], blocks), self._spans[blocks][:, None]
        warps = warps[:, None]
        if ((self._read_span[places] == span) & (self._read_warp[places] != warps)).any():
            raise MemoryFault("a race: a warp writes shared memory that another has just read")
        other = (self._write_span[places] == span) & (self._write_warp[places] != warps)
        if (other & (self._bytes[places] != data)).any():
            raise MemoryFault("a race: two warps write different values to shared memory")
        self._bytes[places] = data
        if (self._bytes[places] != data).any():
            raise MemoryFault("a race: threads write different values to shared memory at once")
        self._written[places] = True
        self._write_warp[places], self._write_span[places] = warps, span


def check_alignment(addresses: np.ndarray, size: int) -> None:
    if (addresses % size).any():
        raise MemoryFault(
            f"an access of {size} bytes at {hex(addresses[addresses % size != 0][0])}"
        )
