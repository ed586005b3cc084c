"""Turn weights that are on a GPU into word links there: only links leave the device.

Does not compute the weights.
"""

from __future__ import annotations

import numpy as np

from ...bundle.bundle import Bundle
from ...errors import BackendError
from ...types import PackedLinks, WordIds
from .devices import Buffers, Device, send_arrays, view_host
from .kernels.launch import Kernel, find_archive

_MAX_PIECES = 1 << 15  # a link is packed into 2 x 16 bits
# Links of a pair that are copied before it is known how many there are: sentences rarely have more.
_LIKELY_LINKS = 64


class LinkFinder:
    """The kernel `symmetrize` on a device."""

    def __init__(self, device: Device, kernel: Kernel) -> None:
        self.device = device
        self.kernel = kernel

    def find_links(
        self,
        buffers: Buffers,
        weights: tuple[int, int],
        words: WordIds,
        threshold: float,
        stream: int,
    ) -> PackedLinks:
        """Find the links of a batch; `weights` point to fwd and bwd, both (B, S, T) float32."""
        (batch, n_src), n_tgt = words.src.shape, words.tgt.shape[1]
        sent = {"src": words.src, "tgt": words.tgt, "spans": words.spans}
        given = send_arrays(buffers, "words", sent, stream)
        cells = batch * n_src * n_tgt
        # total | counts | starts | sentence scores: one copy brings all four.
        head = buffers.on_device("link counts", 4 * (1 + 3 * batch))
        links = buffers.on_device("links", 4 * cells)
        scores = buffers.on_device("link scores", 4 * cells)
        self.device.driver.fill_zeros(head, 4, stream)
        strides = (n_src * n_tgt, n_tgt, 1)
        counts, starts, sentence = (head + 4 * (1 + k * batch) for k in range(3))
        self.kernel.launch(
            (batch,),
            (*weights, given["src"], given["tgt"], given["spans"], n_src, n_tgt, *strides,
             *strides, threshold, head, counts, starts, links, scores, sentence),
            stream,
        )  # fmt: skip
        return self._fetch_links(buffers, batch, (head, links, scores), cells, stream)

    def _fetch_links(
        self, buffers: Buffers, batch: int, at: tuple[int, int, int], cells: int, stream: int
    ) -> PackedLinks:
        """Copy the counts and as many links as are likely; if there are more, copy again."""
        driver = self.device.driver
        head, links, scores = at
        likely = min(cells, _LIKELY_LINKS * batch)
        host = buffers.on_host("link counts", 4 * (1 + 3 * batch))
        driver.copy_out(host, head, 4 * (1 + 3 * batch), stream)

        def copy_links(count: int) -> tuple[int, int]:
            pairs = buffers.on_host("links", 4 * count)
            values = buffers.on_host("link scores", 4 * count)
            driver.copy_out(pairs, links, 4 * count, stream)
            driver.copy_out(values, scores, 4 * count, stream)
            driver.wait_stream(stream)
            return pairs, values

        pairs, values = copy_links(likely)
        total = int(view_host(host, (1,), np.int32)[0])
        if total > likely:
            pairs, values = copy_links(total)
        counts, starts = view_host(host + 4, (2, batch), np.int32).copy()
        packed = view_host(pairs, (total,), np.int32)
        return PackedLinks(
            counts,
            starts,
            packed >> 16,
            packed & 0xFFFF,
            view_host(values, (total,), np.float32).copy(),
            view_host(host + 4 * (1 + 2 * batch), (batch,), np.float32).copy(),
        )

    def close(self) -> None:
        self.device.make_current()
        self.kernel.close()


def open_link_finder(device: Device, bundle: Bundle) -> tuple[LinkFinder | None, str]:
    """Load the bundle's kernel for this device, and tell in a few words where links are found.

    None, with the reason, if they are found on the CPU instead.
    """
    archive = find_archive(bundle, device.capability)
    entry = archive.entries.get(("symmetrize", "fp32")) if archive else None
    if archive is None or entry is None:
        name = "sm_{}{}".format(*device.capability)
        why = f"the bundle has no kernels for {name} (mx-export --kernels)"
    elif bundle.max_length > _MAX_PIECES:
        why = "the model's sentences are too long for the link kernel"
    else:
        try:
            return LinkFinder(device, Kernel(device.driver, archive, entry)), "links on the GPU"
        except BackendError as error:
            why = str(error)
    return None, f"links on the CPU: {why}"
