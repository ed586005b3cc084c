"""Align on a Ray cluster: blocks of pairs through a pool of aligners, any of which may be lost.

Order does not depend on the cluster: a block has a number, and its links go into the file of that
number. Chunks are those of one machine, so that every bit is the same. Does not read lines
(`corpus_blocks`), align (`actors`) or write files (`jobs`).
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..aligner import CHUNK
from ..bundle.bundle import Bundle
from ..bundle.installed import find_installed
from ..errors import MxError
from ..jobs.corpus_options import CorpusOptions, CorpusSummary
from ..jobs.output_files import OutputFolder
from ..options import output_settings
from ..text.corpus import take_sample
from ..text.tokens.detection import plan_tokens
from ..types import Counts
from .actors import BlockAligner, FinishedBlock, RowAligner
from .corpus_blocks import CorpusBlock, divide_corpus, fingerprint_corpus

# Arguments of `Aligner.load` that change the bytes of the output, besides the model.
_LOAD_SETTINGS = ("backend", "dtype", "symmetrize", "threshold", "optimize_for")
# So many blocks may wait at an actor: one is computed while the next one is on its way.
_IN_FLIGHT = 2


def actor_arguments(
    ray: Any, backend: str, actors: int | None, cores: int, *, gpus: int | None = None,
    blocks: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return arguments of `map_batches`, which replaces lost actors and repeats their work.

    Args:
        actors: aligners in the pool; None for as many as the cluster has room for.
        cores: cores of each aligner, unless it has a GPU.
        gpus: 0 or 1 for each; None for 1 if the cluster has any.
        blocks: a pool for so many blocks has the cluster to itself; one without a number grows as
            far as those who read and write leave it room, since actors keep what they were given.
    """
    have = ray.cluster_resources()
    if gpus is None:
        gpus = int(backend != "cpu" and have.get("GPU", 0) >= 1)
    room = int(have.get("GPU", 0) // gpus if gpus else have.get("CPU", 0) // cores)
    if room < 1:
        what = f"{gpus} GPU" if gpus else f"{cores} cores"
        raise MxError(
            f"each aligner wants {what}, but the cluster has {have.get('CPU', 0):g} cores and "
            f"{have.get('GPU', 0):g} GPUs; give fewer with --threads, or --backend cpu"
        )
    alone = blocks is not None
    # A pool of fixed size starts at once; with no more actors than blocks, none is idle.
    size: dict[str, int] = {"size": min(actors or room, blocks or room)}
    if not (alone or actors or gpus):
        size = {"min_size": 1, "max_size": room}
    # With a GPU one core feeds it. If actors took every core of a shared cluster, the tasks
    # that read and write the rows would wait for ever: then actors claim none.
    cores = 1 if gpus else cores
    return {
        "compute": ray.data.ActorPoolStrategy(**size, max_tasks_in_flight_per_actor=_IN_FLIGHT),
        "num_cpus": cores if alone or have["CPU"] > cores else 0,
        "num_gpus": gpus or None,
    }


# ---- a corpus ----


def align_on_cluster(
    src: str,
    tgt: str | None,
    load: Mapping[str, Any],
    options: CorpusOptions,
    on_progress: Callable[[Counts, int], None],
    *,
    address: str | None = None,
    actors: int | None = None,
    cores: int = 1,
    columns: tuple[str, str] = ("src", "tgt"),
    on_note: Callable[[str], None] = lambda message: None,
) -> CorpusSummary:
    """Align a corpus into a folder of numbered files; goes on where an earlier run was stopped.

    Args:
        src: a file of sentences; without `tgt` of pairs, JSONL, Parquet, or a folder of Parquet.
        load: arguments of `Aligner.load`; "model" is a path.
        options: their output is the folder.
        on_progress: gets the counts so far, and how many pairs of them earlier runs had done.
        address: of the cluster, see `join_cluster`.
        actors: aligners, and `cores` of each, see `actor_arguments`.
        columns: names of the two sides in JSONL and Parquet.
        on_note: gets a line about how the tokens are read, if there is need for one.
    """
    start = time.monotonic()
    bundle = Bundle.load(load["model"])
    load = {**load, "model": os.path.abspath(bundle.path)}
    # Mistakes in the text, the settings and the folder are found before a cluster is joined.
    blocks = divide_corpus(
        src, tgt, options.chunk_pairs or CHUNK, separator=options.separator,
        errors=options.errors, names=columns,
    )  # fmt: skip
    if blocks:
        # As one machine decides it: by the beginning of the corpus, not by that of each block.
        sample, _ = take_sample(blocks[0].open_sample())
        models = [name and os.path.abspath(name) for name in (options.spm_src, options.spm_tgt)]
        tokens = plan_tokens(options.token_kind, sample, models=(models[0], models[1]))
        blocks = [replace(block, tokens=tokens) for block in blocks]
        if tokens.message:
            on_note(tokens.message)
    settings = {
        "model": bundle.digest,
        "input": fingerprint_corpus(blocks),
        **{name: load.get(name) for name in _LOAD_SETTINGS},
        **output_settings(options),
    }
    suffix = ".links" if options.format in ("pharaoh", "scored") else f".{options.format}"
    folder = Path(str(options.output))
    with OutputFolder(folder, suffix, settings, restart=not options.resume) as output:
        done = {record["block"] for record in output.records}
        left = [block for block in blocks if block.number not in done]
        signatures = {record["how"] for record in output.records}
        total = sum((Counts(*record["counts"]) for record in output.records), Counts())
        resumed = total.pairs
        with join_cluster(address) if left else nullcontext():
            for block, data, note in align_blocks(left, load, options, actors, cores):
                # Another processor or library may round differently: no mixture of both.
                signatures.add(note["how"])
                if len(signatures) > 1:
                    raise MxError(
                        "the machines do not align in the same way: "
                        f"{' and '.join(sorted(signatures))}; choose one with --backend and "
                        "--dtype, and begin anew with --restart"
                    )
                place = {"first_line": block.first + 1, "pairs": block.pairs}
                output.write_block(block.number, data, {**place, **note})
                total += Counts(*note["counts"])
                on_progress(total, resumed)
        if not output.complete:
            output.finish(len(blocks), {"pairs": total.pairs, "counts": vars(total)})
    return CorpusSummary(total, resumed, time.monotonic() - start, sorted(signatures))


def align_blocks(
    blocks: list[CorpusBlock], load: Mapping[str, Any], options: CorpusOptions,
    actors: int | None = None, cores: int = 1,
) -> Iterator[FinishedBlock]:  # fmt: skip
    """Yield each block, its bytes and its note, as they are finished; stops at the first error."""
    if not blocks:
        return
    ray = import_ray()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = False  # numbers keep the order; nobody waits
    # A task for each block: with an actor, no more than its blocks in flight are lost.
    items = [{"block": pickle.dumps(block)} for block in blocks]
    rows = ray.data.from_items(items, override_num_blocks=len(blocks))
    backend = str(load.get("backend", "auto"))
    found = rows.map_batches(
        BlockAligner,
        batch_size=1,
        batch_format="pyarrow",
        fn_constructor_args=(load, options, cores),
        **actor_arguments(ray, backend, actors, cores, blocks=len(blocks)),
    )
    for row in found.iter_rows():
        done = pickle.loads(row["found"])
        if isinstance(done, MxError):
            raise done
        yield done


# ---- a dataset ----


def align_dataset(
    ds: Any, model: str | Path | None = None, *, src: str = "src", tgt: str = "tgt",
    links: str = "links", scores: str = "scores", actors: int | None = None, cores: int = 1,
    gpus: int | None = None, chunk_pairs: int | None = None, tokenize: bool = False,
    one_based: bool = False, reverse: bool = False, **load: Any,
) -> Any:  # fmt: skip
    """Return a Ray Dataset with two more columns: Pharaoh links, and the list of their scores.

    Links are those that `mx-align` writes. Rows keep their order and number.

    Args:
        ds: a dataset whose columns `src` and `tgt` hold sentences, or lists of words.
        model: path of a bundle that every machine can read; None: the one for `langs`.
        actors, cores, gpus: the pool, see `actor_arguments`.
        load: what else `Aligner.load` takes, like langs, backend, dtype, threshold.
    """
    ray = import_ray()
    if model is None:
        find_installed(load.get("langs"))  # an error here rather than on some machine
    load["model"] = None if model is None else str(Path(model).absolute())
    # Rows have no beginning that all machines see: what they have between spaces are words.
    options = CorpusOptions(
        tokens="raw" if tokenize else "words",
        one_based=one_based,
        reverse=reverse,
        chunk_pairs=chunk_pairs,
    )
    taken = {links, scores} & set(ds.schema().names)
    if taken:
        raise MxError(f"the dataset has a column {taken.pop()} already; name another one")
    pool = actor_arguments(ray, load.get("backend", "auto"), actors, cores, gpus=gpus)
    ds.context.execution_options.preserve_order = True
    # Blocks of exactly one chunk, from the first row on: what is computed together is then the
    # same however the rows were divided into files.
    size = chunk_pairs or CHUNK
    rows = ds.repartition(target_num_rows_per_block=size, strict=True)
    return rows.map_batches(
        RowAligner,
        batch_size=size,
        batch_format="pyarrow",
        fn_constructor_args=(load, options, cores, (src, tgt, links, scores)),
        **pool,
    )


# ---- the cluster ----


@contextmanager
def join_cluster(address: str | None) -> Iterator[None]:
    """Let this process belong to the cluster at an address while the block runs.

    Without an address it is the cluster of RAY_ADDRESS, or one that is started on this machine.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # stderr is for people
    ray = import_ray()
    try:
        with silence_stderr():
            ray.init(
                address=address or None,
                include_dashboard=None if address or os.environ.get("RAY_ADDRESS") else False,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    except Exception as error:  # Ray has no common class of its own errors
        line = str(error).strip().split("\n")[0].removesuffix(".")
        what = f"join the Ray cluster {address}" if address else "start or join a Ray cluster"
        # Clusters since Ray 2.59 may want a token, and do not say so to a process without one.
        hint = "if it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or its file, here"
        more = "" if os.environ.get("RAY_AUTH_MODE") else f"; {hint}"
        raise MxError(f"cannot {what}: {line}{more}") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Let nothing reach stderr while the block runs, not even what is written past Python.

    Ray's libraries write about their own log there, and once a second if a cluster does not answer.
    """
    sys.stderr.flush()
    real = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(real, 2)
        os.close(real)


def import_ray() -> Any:
    """Return the module `ray`; an error says how to install it."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MxError(f'--ray needs Ray ({error}): pip install "mx-align[ray]"') from None
    return ray
