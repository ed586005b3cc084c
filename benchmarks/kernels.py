"""Shows what the compiler made of the GPU kernels, and on a GPU their speed against the twins.

    python -m mx_align.benchmarks.kernels

Without a GPU it prints registers, shared memory and the warps that fit on a multiprocessor; what a
GPU would make of that is not guessed. With one, `mx-doctor`'s checks are run and timed too.
"""

from contextlib import ExitStack

import click

# Registers, shared memory (bytes) and warps of a multiprocessor, from the CUDA programming guide.
LIMITS = {
    "sm_75": (65536, 64 << 10, 32),
    "sm_80": (65536, 164 << 10, 64),
    "sm_86": (65536, 100 << 10, 48),
    "sm_89": (65536, 100 << 10, 48),
    "sm_90": (65536, 228 << 10, 64),
    "sm_100": (65536, 228 << 10, 64),
    "sm_120": (65536, 100 << 10, 48),
}


def warp_occupancy(architecture: str, registers: int, shared: int, threads: int) -> float:
    """Return the share of a multiprocessor's warps that can be there at once."""
    all_registers, all_shared, most = LIMITS[architecture]
    warps = threads // 32
    per_block = -(-registers * 32 // 256) * 256 * warps
    blocks = min(all_registers // per_block, all_shared // (shared + 1024), most // warps)
    return blocks * warps / most


@click.command()
def main() -> None:
    """Compile the kernels for every architecture and print what came out."""
    from ..engine.errors import BackendError
    from ..export.kernels import ARCHITECTURES, compile_variant, list_variants

    print("| GPU | kernel | registers | spilled | shared | threads | occupancy | cubin |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ARCHITECTURES:
        for variant in list_variants(name):
            one = compile_variant(variant, name)
            entry = one.entry
            share = warp_occupancy(name, one.registers, entry.shared, entry.threads)
            print(
                f"| {name} | {entry.name} | {one.registers} | {one.spilled} | {entry.shared} | "
                f"{entry.threads} | {share:.0%} | {len(one.cubin) / 1024:.0f} KB |"
            )
    try:
        time_kernels()
    except BackendError as error:
        print(f"\nno speeds: {error}")


def time_kernels() -> None:
    """Time every kernel on every GPU, against its twin."""
    from ..engine.runtime.backends import GpuOptions
    from ..engine.runtime.gpu.devices import open_devices
    from ..engine.runtime.gpu.kernel_checks import check_kernels
    from ..engine.runtime.gpu.kernels.launch import find_archive

    with ExitStack() as opened:
        for device in open_devices(GpuOptions(), opened):
            archive = find_archive(device.capability)
            if archive is None:
                continue
            print(f"\n| {device.name} | shape | difference | microseconds | G/s |")
            print("|---|---|---|---|---|")
            for check in check_kernels(device, archive):
                rate = check.work / check.seconds / 1e9
                print(
                    f"| {check.kernel} | {check.shape} | {check.difference:.1e} | "
                    f"{1e6 * check.seconds:.0f} | {rate:,.1f} |"
                )


if __name__ == "__main__":
    main()
