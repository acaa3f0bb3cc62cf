"""`run`, `verify` and `bench`: images at work."""

from __future__ import annotations

import json as js
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from monobloc import bench_run, driver, verify_run
from monobloc.bench_run import LayerTime, Timing
from monobloc.cli import Usage, console
from monobloc.cli.flags import Flags
from monobloc.cli.settings import one_thread_count, options, thread_counts, work_on
from monobloc.errors import ModelError, MonoblocError, UnsupportedError
from monobloc.feeds import Feeds, random_feeds, read_feeds, split_examples, write_outputs
from monobloc.loader import CompiledModel, TensorSpec
from monobloc.options import Options
from monobloc.oracles import own_oracle
from monobloc.report import facts
from monobloc.run_image import Built, Executable, Runnable, build_to_run, is_image, open_image
from monobloc.targets import runs_here
from monobloc.verify_run import Difference


# -- data ---------------------------------------------------------------------------------------------
def feeds_for(
    specs: Sequence[TensorSpec], words: Sequence[str], seed: int, limits: Mapping[str, int] | None = None
) -> Feeds:
    """Data as the user gave them, or random data with a note."""
    if words:
        return read_feeds(words, specs)
    if specs:
        console.note(f"no input given: random data, seed {seed}")
    return random_feeds(specs, seed, limits)


def _built(path: Path, o: Options) -> Built:
    with console.progress() as progress:
        return build_to_run(path, o, progress)


# -- run ----------------------------------------------------------------------------------------------
def run(file: Path, words: list[str], output: Path | None, seed: int, flags: Flags) -> int:
    built: Built | None = None
    if is_image(file):
        image: Runnable = open_image(file)
    else:
        one_thread_count(flags)
        built = _built(file, options(flags))
        console.notes(n for i in built.made.imported.values() for n in i.notes)
        image = built.image
    values = image.run(feeds_for(image.inputs, words, seed))
    if output is not None:
        write_outputs(output, values)
        console.say(f"{output}: {', '.join(f'{n} {y.dtype}{list(y.shape)}' for n, y in values.items())}")
    else:
        for name, y in values.items():
            console.say(f"{name} {y.dtype}{list(y.shape)}: {_short(y)}")
    return 0


def _short(y: np.ndarray) -> str:
    text = np.array2string(y, threshold=20, edgeitems=3, separator=", ", max_line_width=10_000)
    top = f"  (largest at {list(map(int, np.unravel_index(int(np.argmax(y)), y.shape)))})" if y.size > 1 else ""
    return ("\n" if "\n" in text else "") + text + top


# -- verify -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verify:
    """How to verify"""

    data: Path | None = None
    input: Sequence[str] = ()
    seed: int = 0
    atol: float | None = None
    rtol: float | None = None
    against: str = "onnxruntime"
    per_layer: bool = False
    json: bool = False


def verify(models: list[Path], how: Verify, flags: Flags) -> int:
    if how.against not in ("onnxruntime", "reference"):
        raise Usage(f"`--against {how.against}` is neither onnxruntime nor reference")
    if how.data and how.input:
        raise Usage("`--data` has the inputs in it; give no `--input`")
    work = work_on(models, flags)
    if not work.models:
        raise Usage("no model to verify: the oracle needs the model's file, an image is not enough")
    bad = 0
    for path, o in work.models:
        found = verify_model(path, o, how)
        bad += not all(d.ok for d in found)
        oracle = oracle_of(path, o, how.against)
        _show_verified(path, found, replace(how, against=oracle))
        if oracle == "onnxruntime" and o.numerics != "strict" and not all(d.ok for d in found):
            _told_of_rounding(path)
        if how.per_layer:
            _per_layer(path, o, how)
    return 1 if bad else 0


def _told_of_rounding(path: Path) -> None:
    if verify_run.quantizes(path):
        console.note("a value that is rounded the other way inside a quantized model goes on into later layers\n"
                     "  hint: `--numerics strict` rounds where the model's nodes do")


def verify_model(path: Path, o: Options, how: Verify) -> list[Difference]:
    built = _built(path, o)
    console.notes(n for i in built.made.imported.values() for n in i.notes)
    if how.data is not None:
        ins, want = split_examples(how.data)
        feeds = read_feeds([str(how.data)], built.image.inputs) if ins else {}
        return verify_run.compare_all(built.image.run(feeds), want, how.rtol, how.atol)
    feeds = feeds_for(built.image.inputs, how.input, how.seed, built.limits)
    return compared(path, o, built, feeds, how)


def compared(path: Path, o: Options, built: Built, feeds: Feeds, how: Verify) -> list[Difference]:
    """Every output beside the oracle's; a tolerance that the user gives is kept to the letter."""
    def oracle(feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return expected(path, o, built, dict(feeds), how.against)

    if oracle_of(path, o, how.against) == "reference" and how.against != "reference":
        own = own_oracle(path)
        console.note("compared with our own reference" + ("" if own.installed() else
                     f": {own.NAME} is not installed\n  hint: {own.INSTALL}"))
    want = oracle(feeds)
    found = verify_run.compare_all(built.image.run(feeds), want, how.rtol, how.atol)
    if how.rtol is not None or how.atol is not None:
        return found
    return verify_run.with_amplification(found, feeds, want, oracle)


def expected(path: Path, o: Options, built: Built, feeds: Feeds, against: str) -> dict[str, np.ndarray]:
    if against == "reference":
        return verify_run.reference(built.made.imported[str(path)].graphs, feeds)
    if own_oracle(path) is not None:
        return _own_expected(path, o, built, feeds)
    if o.start_from:
        raise UnsupportedError("onnxruntime cannot start inside a graph", hints=["`--against reference`, or `--data`"])
    if o.keep_outputs:
        names = list(o.keep_outputs)
        return verify_run.ort_run(verify_run.oracle_session(path, names), feeds, o.bind, names)
    return verify_run.ort_run(verify_run.oracle_session(path), feeds, o.bind)


def oracle_of(path: Path, o: Options, against: str) -> str:
    """Who says what is right: a model of another format is compared with its own framework where that is installed."""
    own = own_oracle(path)
    if own is None or against == "reference":
        return against
    other = o.start_from or o.keep_outputs or (o.numerics == "tflm" and path.suffix == ".tflite")
    return "reference" if other or not own.installed() else str(own.NAME)


def _own_expected(path: Path, o: Options, built: Built, feeds: Feeds) -> dict[str, np.ndarray]:
    """By its framework, or by us where that is not installed or knows no such output"""
    own = own_oracle(path)
    if oracle_of(path, o, own.NAME) == "reference":
        return verify_run.reference(built.made.imported[str(path)].graphs, feeds)
    found: dict[str, np.ndarray] = own.Session(path).run({**feeds, **o.bind})
    return found


def difference_rows(found: Sequence[Difference]) -> list[list[str]]:
    return [[d.name, d.type, *map(console.number, (d.abs, d.rel, d.ulp)), _used(d), "ok" if d.ok else "FAIL"]
            for d in found]


HEAD = ("output", "type", "abs", "rel", "ulp", "of tolerance", "")


def _used(d: Difference) -> str:
    return "-" if not math.isfinite(d.used) else f"{100 * d.used:.3g}%"


def _show_verified(path: Path, found: Sequence[Difference], how: Verify) -> None:
    if how.json:
        console.say(js.dumps({"model": path.name, "outputs": [{**asdict(d), "ok": d.ok} for d in found]}))
        return
    oracle = str(how.data) if how.data else how.against
    console.heading(f"{path.name}: largest errors against {oracle}")
    console.table(HEAD, difference_rows(found), right=(2, 3, 4, 5))
    for d in found:
        if d.is_rounding:
            console.note(f"output `{d.name}` amplifies rounding: inputs that differ in their last bit change {oracle}'s"
                         f" own answer by up to {d.amplified:.3g}")
        if not d.ok:
            console.error(f"output `{d.name}` " + (d.problem or f"differs most at {list(d.at)}: {d.got:.9g}, "
                                                   f"{oracle} has {d.want:.9g}"))


def _per_layer(path: Path, o: Options, how: Verify) -> None:
    """Every value the model makes as an output, compared in the model's order."""
    own = own_oracle(path)
    inner = _comparable(path, o)
    names = [i.value for i in inner]
    built = _built(path, replace(o, keep_outputs=tuple(names)))
    feeds = (read_feeds([str(how.data)], built.image.inputs) if how.data
             else feeds_for(built.image.inputs, how.input, how.seed, built.limits))
    if oracle_of(path, o, how.against) == "reference":
        want = verify_run.reference(built.made.imported[str(path)].graphs, feeds)
    elif own is not None:
        want = own.inner_session(path).values({**feeds, **o.bind}, names)
    else:
        want = verify_run.ort_run(verify_run.oracle_session(path, names), feeds, o.bind, names)
    found = {d.name: d for d in verify_run.compare_all(built.image.run(feeds), want, how.rtol, how.atol)}
    first = next((i for i in inner if not found[i.value].ok), None)
    _show_layers([(i, found[i.value]) for i in inner], first, how)


def _comparable(path: Path, o: Options) -> list[verify_run.Inner]:
    """Values that reach an output; the others are left out of the import and cannot be kept."""
    own = own_oracle(path)
    inner = verify_run.inner_values(path) if own is None else [verify_run.Inner(*v) for v in own.inner_values(path)]
    try:
        driver.import_model(path, replace(o, keep_outputs=tuple(i.value for i in inner)))
        return inner
    except MonoblocError:  # a node that no output needs is not supported: keep what the model does import
        graph = driver.import_model(path, o).graph
        known = {v.origin for v in graph.values()}
        return [i for i in inner if i.value in known]


def _show_layers(found: Sequence[tuple[verify_run.Inner, Difference]], first: verify_run.Inner | None,
                 how: Verify) -> None:
    if how.json:
        rows = [{"node": i.node, "op": i.op, **asdict(d), "ok": d.ok} for i, d in found]
        console.say(js.dumps({"first": first.node if first else None, "layers": rows}))
        return
    console.heading("per layer, every value kept")
    worst = sorted(found, key=lambda x: -x[1].used)[:10]
    console.table(("node", "op", *HEAD), [[console.short(i.node), i.op, console.short(r[0]), *r[1:]] for (i, d), r in
                                          zip(worst, difference_rows([d for _, d in worst]), strict=True)],
                  right=(4, 5, 6, 7))
    if first is None:
        console.say("no node exceeds the tolerance when every value is kept"
                    " (kept values are neither fused away nor held more exactly than their type: a difference without"
                    " --per-layer comes from that)")
    else:
        console.say(f"the difference arises at {first.op} '{first.node}', in value '{first.value}'")


# -- bench --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Bench:
    """How to time"""

    vs: str = "onnxruntime"
    per_layer: bool = False
    latency: bool = False
    seconds: float = 2.0
    input: Sequence[str] = ()
    seed: int = 0
    json: bool = False

    @property
    def peers(self) -> list[str]:
        names = [n.strip() for n in self.vs.split(",") if n.strip() not in ("", "none")]
        for n in names:
            if n not in bench_run.PEERS:
                raise Usage(f"`--vs {n}`: known peers are {', '.join(bench_run.PEERS)}")
        return names


def bench(files: list[Path], how: Bench, flags: Flags) -> int:
    peers = how.peers
    images = [f for f in files if is_image(f)]
    if images and len(images) < len(files):
        raise Usage("models and images cannot be mixed in one `bench`")
    if images:
        for path in images:
            _bench_image(path, how, thread_counts(flags))
        return 0
    work = work_on(files, flags)
    if not work.models:
        raise Usage("no model to time")
    for path, o in work.models:
        found = [t for n in thread_counts(work.flags) for t in time_model(path, replace(o, threads=n), how, peers)]
        _show_times(path, found, how)
        if how.latency and runs_here(o.target):
            _cold(path, o)
        if how.per_layer:
            _layers(path, o, how)
    return 0


def time_model(path: Path, o: Options, how: Bench, peers: Sequence[str]) -> list[Timing]:
    """Ours and the peers' times with one number of threads; a peer that cannot run is told and left out."""
    built = _built(path, o)
    feeds = feeds_for(built.image.inputs, how.input, how.seed, built.limits)
    if isinstance(built.image, Executable):
        console.note("timed in the emulator: only ratios between builds mean something")
        return [bench_run.time_executable(built.image, how.seconds, o.threads)]
    assert isinstance(built.image, CompiledModel)
    contenders = [bench_run.ours(built.image, feeds, o.threads)]
    full = {**feeds, **o.bind}
    if o.start_from and peers:
        console.warning(f"{', '.join(peers)} cannot start inside a graph: timed alone")
    for name in peers if not o.start_from else ():
        try:
            contenders.append(bench_run.peer(name, path, full, o.threads))
        except (ModelError, UnsupportedError) as e:
            console.warning(str(e))
    with console.progress() as progress:
        progress(f"timing {path.name}, {o.threads} thread{'s' * (o.threads > 1)}")
        return bench_run.interleave(contenders, how.seconds)


def _bench_image(path: Path, how: Bench, threads: Sequence[int]) -> None:
    image = open_image(path)
    found = []
    for n in threads:
        if isinstance(image, Executable):
            found.append(bench_run.time_executable(image, how.seconds, n))
        else:
            assert isinstance(image, CompiledModel)
            feeds = feeds_for(image.inputs, how.input, how.seed)
            found += bench_run.interleave([bench_run.ours(image, feeds, n)], how.seconds)
    _show_times(path, found, how)


def _show_times(path: Path, found: Sequence[Timing], how: Bench) -> None:
    if how.json:
        console.say(js.dumps({"model": path.name, "times": [asdict(t) for t in found]}))
        return
    base = {t.threads: t.median for t in found if t.name == bench_run.OURS}
    rows = []
    for t in found:
        ratio = "" if t.name == bench_run.OURS else f"{base[t.threads] / t.median:.2f}"
        more = (t.first, t.p90, t.p99, t.most) if how.latency else ()
        rows.append([t.name, t.threads, *map(console.seconds, (t.median, t.least, *more)), t.runs, ratio])
    head = ["", "threads", "median", "min", *(["first", "p90", "p99", "max"] if how.latency else []), "runs",
            "ours / theirs"]
    console.heading(path.name)
    console.table(head, rows, right=range(1, len(head)))


def _cold(path: Path, o: Options) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp, console.progress() as progress:
        out = Path(tmp) / "model"
        driver.build([path], out, "exe", o, progress)
        image = open_image(out)
        assert isinstance(image, Executable)
        console.say(f"process start to end, one inference: {console.seconds(bench_run.cold_start(image))} (median)")


def _layers(path: Path, o: Options, how: Bench) -> None:
    """A second build with a clock round every layer."""
    built = _built(path, replace(o, profile=True))
    if not isinstance(built.image, CompiledModel):
        raise UnsupportedError("`--per-layer` times on this machine only")
    low = facts.programs_of(built.made.image, o)[0][0]
    feeds = feeds_for(built.image.inputs, how.input, how.seed, built.limits)
    run_once = bench_run.ours(built.image, feeds, o.threads).run
    found = bench_run.layer_times(built.image, low, run_once, how.seconds)
    if how.json:
        console.say(js.dumps({"model": path.name, "layers": [asdict(x) for x in found]}))
        return
    console.table(("layer", "ops", "output", "time", "share"), [_layer_row(x) for x in found], right=(3, 4))


def _layer_row(x: LayerTime) -> list[str]:
    return [x.name, x.ops, x.type, console.seconds(x.seconds), f"{100 * x.share:.1f}%"]


