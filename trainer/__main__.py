"""`python -m mx_align.trainer`, which torchrun starts, is `mx-train`."""

from .commands.train import main

main(prog_name="mx-train")
