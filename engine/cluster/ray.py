"""Alignment on a Ray cluster: blocks of pairs through a pool of aligners, any of which may die.
Knows Ray Data, actors and their resources; lines are the matter of `blocks`, files of `shards`.

Order does not hang on the cluster: a block has a number, and its links go into the file of that
number. Chunks are cut where one machine cuts them, so that every bit is the same."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MxError

if TYPE_CHECKING:
    from ..align.pipeline import Done
    from ..aligner import Aligner
    from ..types import Links, Pairs
    from .blocks import Block

SUFFIXES = {
    "pharaoh": ".links", "scored": ".links", "talp": ".talp", "jsonl": ".jsonl", "a3": ".a3",
    "parquet": ".parquet",
}  # fmt: skip
# So many blocks may wait at an actor: one is computed while the next one is on its way.
_IN_FLIGHT = 2


@dataclass(frozen=True)
class Work:
    """What every aligner of the pool must know. `load` has the arguments of `Aligner.load`."""

    load: Mapping[str, Any] = field(default_factory=dict)
    format: str = "pharaoh"
    one_based: bool = False
    reverse: bool = False
    tokenize: bool = False
    chunk_pairs: int | None = None  # None: as many as one machine takes
    batch_tokens: int | None = None


@dataclass(frozen=True)
class Pool:
    """How many aligners, and what each of them gets: one GPU, or so many cores."""

    actors: int | None = None  # None: as many as the cluster has room for
    cores: int = 1
    gpus: int | None = None  # 0 or 1 for each; None: 1 if the cluster has any

    def arguments(self, ray: Any, backend: str, blocks: int | None = None) -> dict[str, Any]:
        """For `map_batches`, which starts lost actors again and repeats what they had begun, as
        often as it takes, unless told otherwise. A pool for so many `blocks` has the cluster to
        itself; one without a number grows as far as those who read and write leave it room, since
        actors keep what they were given."""
        have = ray.cluster_resources()
        gpus = self.gpus
        if gpus is None:
            gpus = int(backend != "cpu" and have.get("GPU", 0) >= 1)
        room = int(have.get("GPU", 0) // gpus if gpus else have.get("CPU", 0) // self.cores)
        if room < 1:
            what = f"{gpus} GPU" if gpus else f"{self.cores} cores"
            raise MxError(
                f"each aligner wants {what}, but the cluster has {have.get('CPU', 0):g} cores and "
                f"{have.get('GPU', 0):g} GPUs; give fewer with --threads, or --backend cpu"
            )
        alone = blocks is not None
        size: dict[str, int] = {"size": min(self.actors or room, blocks or room)}
        if not (alone or self.actors or gpus):
            size = {"min_size": 1, "max_size": room}
        cores = 1 if gpus else self.cores
        return {
            "compute": ray.data.ActorPoolStrategy(**size, max_tasks_in_flight_per_actor=_IN_FLIGHT),
            "num_cpus": cores if alone or have["CPU"] > cores else 0,
            "num_gpus": gpus or None,
        }


# ---- in the actors ----


class _Loaded:
    """An aligner in an actor, or why there is none: an error is told, not raised, since Ray
    would start the actor again and again."""

    def __init__(self, work: Work, cores: int) -> None:
        from ..aligner import Aligner

        self.work = work
        self.problem = ""
        try:
            self.aligner = Aligner.load(**work.load, threads=cores)
            self._check(self.aligner)
        except MxError as error:
            self.problem = str(error)

    def _check(self, aligner: Aligner) -> None:
        if not aligner.backend.steady and (self.work.chunk_pairs or self.work.batch_tokens):
            raise MxError(
                "--chunk-pairs and --batch-tokens would change the links of the "
                f"{aligner.backend.precision} model on {aligner.backend.name}, whose pairs "
                "influence each other; leave them out or give --backend cpu --dtype fp32"
            )

    def run(self, lines: Any, render: Callable[[Pairs, Links], Any]) -> Iterator[Done]:
        """The chunks of some lines, cut as one machine cuts them."""
        from ..align.pipeline import stream
        from ..text.corpus import Reader
        from ..text.tokenizer import tokenize
        from ..text.words import split

        cut = tokenize if self.work.tokenize else split
        reader = Reader(lines, _chunk(self.work), splits=(cut, cut))
        nulls = self.work.format == "jsonl"
        engine = self.aligner.engine([render], batch_tokens=self.work.batch_tokens, nulls=nulls)
        return stream(engine, reader.chunks(), self.aligner.backend.workers)


class BlockAligner(_Loaded):
    """Reads the blocks it is told, and gives back the bytes of their files."""

    def __call__(self, rows: Any) -> Any:
        import pyarrow as pa

        from .blocks import Block

        found = [self._one(Block.load(text)) for text in rows.column("block").to_pylist()]
        kinds = [("number", pa.int64()), ("data", pa.large_binary()), ("note", pa.string())]
        return pa.table(
            {name: pa.array([row[name] for row in found], kind) for name, kind in kinds}
        )

    def _one(self, block: Block) -> dict[str, Any]:
        if self.problem:
            return _told(block, self.problem)
        try:
            data, note = self._align(block)
        except MxError as error:
            return _told(block, str(error))
        return {"number": block.number, "data": data, "note": json.dumps(note)}

    def _align(self, block: Block) -> tuple[bytes, dict[str, Any]]:
        from ..links.formats import Format
        from ..types import Counts

        work, parquet = self.work, self.work.format == "parquet"
        based: dict[str, Any] = {"one_based": work.one_based, "reverse": work.reverse}
        calibrate = self.aligner.bundle.calibrate
        lines = Format("pharaoh" if parquet else work.format, calibrate=calibrate, **based)
        scores = Format("scores", **based)

        def render(pairs: Pairs, links: Links) -> list[Any]:
            if not parquet:
                return lines(pairs, links)
            sides = map(" ".join, pairs.src), map(" ".join, pairs.tgt)
            return list(zip(*sides, lines(pairs, links), scores(pairs, links), strict=True))

        items: list[Any] = []
        counts = Counts()
        for done in self.run(block, render):
            items += done.items[0]
            counts += done.counts
        if counts.pairs != block.pairs:
            raise MxError(
                f"block {block.number} has {counts.pairs:,} pairs where {block.pairs:,} were "
                "counted: the corpus has changed meanwhile; give --restart to begin anew"
            )
        data = _parquet(items) if parquet else "".join(f"{item}\n" for item in items).encode()
        return data, {"counts": counts.row(), "how": self.aligner.signature()}


def _told(block: Block, problem: str) -> dict[str, Any]:
    return {"number": block.number, "data": b"", "note": json.dumps({"problem": problem})}


def _parquet(rows: list[tuple[str, str, str, str]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    src, tgt, links, scores = zip(*rows, strict=True) if rows else ((), (), (), ())
    values = [[float(score) for score in line.split(" ") if score] for line in scores]
    table = pa.table({
        "src": pa.array(src, pa.string()), "tgt": pa.array(tgt, pa.string()),
        "links": pa.array(links, pa.string()), "scores": pa.array(values, pa.list_(pa.float32())),
    })  # fmt: skip
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _chunk(work: Work) -> int:
    from ..aligner import CHUNK

    return work.chunk_pairs or CHUNK


class _Given:
    """Lines that are in memory, as a `corpus.Reader` wants them."""

    def __init__(self, src: list[str], tgt: list[str]) -> None:
        self.pairs = list(zip(src, tgt, strict=True))

    def share(self, multiple: int = 1) -> tuple[int, int | None]:
        return 0, len(self.pairs)

    def within(self, first: int, end: int | None) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)


class RowAligner(_Loaded):
    """Adds a column of links, and one of scores, to rows of two sentences."""

    def __init__(self, work: Work, cores: int, names: tuple[str, str, str, str]) -> None:
        super().__init__(work, cores)
        self.names = names

    def __call__(self, rows: Any) -> Any:
        import pyarrow as pa

        from ..links.formats import Format
        from .blocks import as_line

        if self.problem:
            raise MxError(self.problem)
        src, tgt, links, scores = self.names
        sides = [
            [as_line(value, f"column {name}") for value in rows.column(name).to_pylist()]
            for name in (src, tgt)
        ]
        based: dict[str, Any] = {"one_based": self.work.one_based, "reverse": self.work.reverse}
        line, score = Format("pharaoh", **based), Format("scores", **based)
        found = [
            item
            for done in self.run(_Given(*sides), lambda p, f: [*zip(line(p, f), score(p, f))])  # noqa: B905
            for item in done.items[0]
        ]
        values = [[float(value) for value in text.split(" ") if value] for _, text in found]
        rows = rows.append_column(links, pa.array([text for text, _ in found], pa.string()))
        return rows.append_column(scores, pa.array(values, pa.list_(pa.float32())))


# ---- from outside ----


def align_dataset(
    ds: Any, model: str | Path | None = None, *, src: str = "src", tgt: str = "tgt",
    links: str = "links", scores: str = "scores", actors: int | None = None, cores: int = 1,
    gpus: int | None = None, chunk_pairs: int | None = None, tokenize: bool = False,
    one_based: bool = False, reverse: bool = False, **load: Any,
) -> Any:  # fmt: skip
    """A Ray Dataset with two more columns: Pharaoh links as `mx-align` writes them, and the list of
    their scores. Rows keep their order and number.

    Args:
        ds: a dataset whose columns `src` and `tgt` hold sentences, or lists of words.
        model: path of a bundle that every machine can read; None: the one for `langs`.
        actors: aligners in the pool; None for as many as the cluster has room for.
        cores: cores of each aligner on the CPU.
        gpus: 1 or 0 GPUs for each aligner; None takes them if the cluster has any.
        load: what else `Aligner.load` takes, like langs, backend, dtype, threshold.
    """
    ray = _imported()
    if model is None:
        from ..aligner import installed

        installed(load.get("langs"))  # an error here rather than on some machine
    work = Work({**load, "model": model and str(Path(model).absolute())}, tokenize=tokenize,
                one_based=one_based, reverse=reverse, chunk_pairs=chunk_pairs)  # fmt: skip
    names = {links, scores} & set(ds.schema().names)
    if names:
        raise MxError(f"the dataset has a column {names.pop()} already; name another one")
    pool = Pool(actors, cores, gpus).arguments(ray, load.get("backend", "auto"))
    ds.context.execution_options.preserve_order = True
    # Blocks of exactly one chunk, from the first row on: what is computed together is then the
    # same whatever the files were cut into.
    rows = ds.repartition(target_num_rows_per_block=_chunk(work), strict=True)
    return rows.map_batches(
        RowAligner,
        batch_size=_chunk(work),
        batch_format="pyarrow",
        fn_constructor_args=(work, cores, (src, tgt, links, scores)),
        **pool,
    )


def align_blocks(
    blocks: list[Block], work: Work, pool: Pool, *, verbose: bool = False
) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    """Number, bytes and note of each block, as they are finished; stops at the first error."""
    ray = _imported()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = verbose
    context.execution_options.preserve_order = False  # numbers keep the order; nobody waits
    rows = ray.data.from_items(
        [{"block": block.dump()} for block in blocks], override_num_blocks=len(blocks)
    )
    backend = str(work.load.get("backend", "auto"))
    found = rows.map_batches(
        BlockAligner,
        batch_size=1,
        batch_format="pyarrow",
        fn_constructor_args=(work, pool.cores),
        **pool.arguments(ray, backend, len(blocks)),
    )
    for row in found.iter_rows():
        note = json.loads(row["note"])
        if "problem" in note:
            raise MxError(note["problem"])
        yield int(row["number"]), row["data"], note


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Inside, this process belongs to the cluster at an address; without one to that of
    RAY_ADDRESS, or to one on this machine that is started for it."""
    import logging

    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # stderr is for people
    ray = _imported()
    try:
        with _hushed():
            ray.init(
                address=address or None,
                include_dashboard=None if address or os.environ.get("RAY_ADDRESS") else False,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    except Exception as error:  # Ray has no common class of its own errors
        line = str(error).strip().split("\n")[0].removesuffix(".")
        what = f"join the Ray cluster {address}" if address else "start or join a Ray cluster"
        raise MxError(f"cannot {what}: {line}{_token_hint()}") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _hushed() -> Iterator[None]:
    """Inside, nothing reaches stderr: what Ray's libraries write there themselves, past Python,
    is about their own log, and once a second when a cluster does not answer."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _token_hint() -> str:
    """Clusters since Ray 2.59 may want a token; their answer to a process without one does not
    say so."""
    if os.environ.get("RAY_AUTH_MODE"):
        return ""
    return "; if it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or its file, here"


def _imported() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MxError(f'--ray needs Ray ({error}): pip install "mx-align[ray]"') from None
    return ray
