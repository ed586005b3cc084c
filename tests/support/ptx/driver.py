"""A fake of the CUDA driver that executes the PTX it is given."""

from __future__ import annotations

from ....engine.errors import BackendError
from ..fake_gpu import FakeDriver
from .machine import run_blocks
from .memory import GlobalMemory
from .program import Program, read_program

MOST_SHARED = 48 << 10  # bytes of a block that every GPU grants without being asked


class PtxDriver(FakeDriver):
    """GPUs of a compute capability that translate PTX and run it, as the real driver would.

    Cubins are refused, as by a GPU of another generation: the engine then loads the PTX.
    """

    def __init__(self, capability: tuple[int, int], devices: int = 1) -> None:
        super().__init__(devices)
        self.compute = capability
        self.too_new = True
        self.change = str  # what a test does to the PTX before it is loaded
        self.executed: dict[str, int] = {}  # how often each kind of instruction was run

    def get_function(self, module: bytes, name: str, shared: int) -> tuple[Program, int]:
        if not module.endswith(b"\0"):
            raise BackendError("CUDA: cuModuleLoadData failed with CUDA_ERROR_INVALID_PTX")
        program = read_program(self.change(module[:-1].decode()), name)
        assert shared <= MOST_SHARED, f"{shared} bytes of shared memory need leave"
        return program, shared

    def launch(self, function, grid, threads, shared, stream, kinds, values):
        program, granted = function
        assert shared == granted and threads == program.threads
        memory = GlobalMemory(self.list_allocations)
        run_blocks(program, grid, shared, values, memory, self.executed)
        self.note("launch", program.name, grid, threads, stream)

    def list_allocations(self):
        """Yield address and bytes of what is allocated on the current device."""
        for address, (raw, size, device) in self.memory_of.items():
            if device == self.here:
                start = address - raw.ctypes.data
                yield address, raw[start : start + size]
