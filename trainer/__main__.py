"""`python -m mx.trainer`, which torchrun starts, is `mx-train`."""

from mx.trainer.cli import main

main(prog_name="mx-train")
