"""Turn weights that are on a GPU into word links there: only links leave the device.

Does not compute the weights.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np

from ...bundle.bundle import Bundle
from ...errors import BackendError
from ...types import PackedLinks, WordIds
from .devices import Buffers, Device, send_arrays, view_host
from .kernels.launch import Kernel, find_archive

_MAX_PIECES = 1 << 15  # a link is packed into 2 x 16 bits
# Links of a pair that are copied before it is known how many there are: sentences rarely have more.
_LIKELY_LINKS = 64


@dataclass
class LinkFinder:
    """The kernel `symmetrize` on a device."""

    device: Device
    kernel: Kernel

    def find_links(
        self,
        buffers: Buffers,
        weights: tuple[int, int],
        words: WordIds,
        threshold: float,
        stream: int,
    ) -> PackedLinks:
        """Find the links of a batch; `weights` point to fwd and bwd, both (B, S, T) float32."""
        driver = self.device.driver
        (batch, n_src), n_tgt = words.src.shape, words.tgt.shape[1]
        sent = {"src": words.src, "tgt": words.tgt, "spans": words.spans}
        given = send_arrays(buffers, "words", sent, stream)
        cells = batch * n_src * n_tgt
        # total | counts | starts | sentence scores: one copy brings all four.
        size = 4 * (1 + 3 * batch)
        head, host = buffers.on_device("link counts", size), buffers.on_host("link counts", size)
        to_links = buffers.on_device("links", 4 * cells)
        to_scores = buffers.on_device("link scores", 4 * cells)
        driver.fill_zeros(head, 4, stream)
        strides = (n_src * n_tgt, n_tgt, 1)
        to_counts, to_starts, to_sentence = (head + 4 * (1 + k * batch) for k in range(3))
        self.kernel.launch(
            (batch,),
            (*weights, given["src"], given["tgt"], given["spans"], n_src, n_tgt, *strides,
             *strides, threshold, head, to_counts, to_starts, to_links, to_scores, to_sentence),
            stream,
        )  # fmt: skip
        driver.copy_out(host, head, size, stream)
        count = min(cells, _LIKELY_LINKS * batch)
        while True:
            pairs = buffers.on_host("links", 4 * count)
            values = buffers.on_host("link scores", 4 * count)
            driver.copy_out(pairs, to_links, 4 * count, stream)
            driver.copy_out(values, to_scores, 4 * count, stream)
            driver.wait_stream(stream)
            total = int(view_host(host, (1,), np.int32)[0])
            if total <= count:
                break
            count = total  # there are more than is likely: once more
        counts, starts = view_host(host + 4, (2, batch), np.int32).copy()
        packed = view_host(pairs, (total,), np.int32)
        scores = view_host(values, (total,), np.float32).copy()
        sentence = view_host(host + 4 * (1 + 2 * batch), (batch,), np.float32).copy()
        return PackedLinks(counts, starts, packed >> 16, packed & 0xFFFF, scores, sentence)

    def close(self) -> None:
        self.device.make_current()
        self.kernel.close()


def open_link_finder(
    device: Device, bundle: Bundle, opened: ExitStack
) -> tuple[LinkFinder | None, str]:
    """Load the kernel for this device, and tell in a few words where links are found.

    None, with the reason, if they are found on the CPU instead. `opened` closes it.
    """
    archive = find_archive(device.capability)
    if archive is None:
        why = "there are no kernels for sm_{}{}".format(*device.capability)
    elif bundle.max_length > _MAX_PIECES:
        why = "the model's sentences are too long for the link kernel"
    else:
        try:
            finder = LinkFinder(
                device, Kernel(device.driver, archive, archive.entries["symmetrize"])
            )
            return opened.enter_context(closing(finder)), "links on the GPU"
        except BackendError as error:
            why = str(error)
    return None, f"links on the CPU: {why}"
