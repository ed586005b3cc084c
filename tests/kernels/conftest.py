"""What the kernel tests share: the interpreter's process and a useful comparison."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import interpreted
import numpy as np
import pytest


@pytest.fixture(scope="session")
def interpreter():
    """Runs a function of `interpreted` where triton interprets."""
    pytest.importorskip("triton", reason="triton is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=interpreted.begin) as pool:
        yield lambda function, *args, **options: pool.submit(function, *args, **options).result()


@pytest.fixture
def assert_close():
    def check(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
        assert found.shape == wanted.shape
        difference = np.abs(found.astype(np.float64) - wanted)
        bad = ~(difference <= tolerance)
        if bad.any():
            worst = np.unravel_index(np.nanargmax(np.where(bad, difference, -1)), found.shape)
            pytest.fail(
                f"{bad.sum()} of {bad.size} differ, most at {worst}: {found[worst]} instead of "
                f"{wanted[worst]}, tolerance {tolerance}"
            )

    return check
