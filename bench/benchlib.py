# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""What bench/run, bench/bars, bench/readme-table and bench/demo/run share: running programs on
virtual nodes, the lines they print, quantiles, result files. Standard library only."""

import contextlib
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCHEMA = "asyncprog-bench-1"
MPIS = ("ompi", "mpich")
MPI_NAMES = {"ompi": "Open MPI", "mpich": "MPICH"}
QUANTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)

# Open MPI's osc/ucx takes part only when told that TCP will do (it looks for fast networks).
OMPI_UCX = {"OMPI_MCA_osc": "ucx", "OMPI_MCA_opal_common_ucx_tls": "any",
            "OMPI_MCA_opal_common_ucx_devices": "any"}
# Debian's configuration excludes pt2pt (and ucx), and nothing that is left serves two nodes over
# TCP: MPI_Win_allocate gives MPI_ERR_WIN. Natively it has to be enabled by hand.
OMPI_PT2PT = {"OMPI_MCA_osc": "pt2pt"}
# Open MPI 5 has no pt2pt, and serves windows over TCP by osc/rdma as it is; its osc/ucx wants UCX for messages, too.
OMPI_UCX_5 = {**OMPI_UCX, "OMPI_MCA_pml": "ucx"}


class JobError(Exception):
    """A program failed; the text says which and how, with the end of its output."""


def say(text):
    print(text, flush=True)


def end_cleanly_when_killed():
    """SIGTERM ends the running job and removes what it left, as an interrupt does."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def build_dir():
    return os.path.abspath(os.environ.get("PROG_BUILD") or os.environ.get("BUILD") or
                           os.path.join(ROOT, "build"))


def program(mpi, name):
    path = os.path.join(build_dir(), "bench", mpi, name)
    if not os.access(path, os.X_OK):
        raise JobError(f"{path} is not built (make bench-programs)")
    return path


def vnodes():
    return os.path.join(ROOT, "tools", "vnodes", "vnodes")


def hook_library(mpi):
    return os.path.join(build_dir(), "lib", f"libprogmpi-{mpi}.so")


def parse_output(text):
    """BENCH lines -> {key: (unit, samples)}; samples of a repeated key are joined."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("BENCH "):
            continue
        d = json.loads(line[6:])
        if d["key"] in found:
            found[d["key"]][1].extend(d["samples"])
        else:
            found[d["key"]] = (d["unit"], d["samples"])
    return found


def run_job(mpi, nodes, ranks, argv, hook=False, env=None, timeout=150, bind="0 1", attempts=1,
            what=None, may_hang_at_end=False, rate=None, conf=None, job=None):
    """Run one program on virtual nodes.

    Returns (results of parse_output, seconds, failed attempts, output). MPICH sometimes hangs or
    crashes in MPI_Finalize over TCP. So natively, or with may_hang_at_end, a job counts as done when
    it has written its results (vnodes says when it ended one), and more than one attempt may be
    asked for (each failed one is told); otherwise neither is tolerated. rate: of the nodes' links, in
    tc's units. conf: of the daemons. job: number of one of several that run at once.
    """
    name = f"bench-{os.getpid()}" + (f"-{job}" if job is not None else "")
    cmd = [vnodes(), "run", "--name", name, "--mpi", mpi, "--nodes", str(nodes),
           "-n", str(ranks), "--timeout", str(timeout)]
    if rate:
        cmd += ["--rate", rate]
    if bind:
        cmd += ["--bind", bind]
    for k, v in (conf or {}).items():
        cmd += ["--set", f"{k}={v}"]
    env = dict(env or {})
    done_dir = None
    if hook:
        cmd += ["--hook"]
    if not hook or may_hang_at_end:
        done_dir = tempfile.TemporaryDirectory(dir=os.path.join(build_dir(), "bench"))
        env["BENCH_DONE"] = os.path.join(done_dir.name, "done")
        cmd += ["--done-file", env["BENCH_DONE"], "--grace", "3"]
    for k, v in env.items():
        cmd += ["--env", f"{k}={v}"]
    try:
        return run_attempts(cmd + ["--"] + argv, timeout, attempts,
                            f"{what or os.path.basename(argv[0])} with {MPI_NAMES[mpi]}")
    finally:
        if done_dir:
            done_dir.cleanup()


def run_attempts(cmd, timeout, attempts, what):
    full_env = dict(os.environ, PROG_BUILD=build_dir())
    failed = 0
    while True:
        t0 = time.monotonic()
        with tempfile.TemporaryFile("w+") as out:
            with subprocess.Popen(cmd, stdout=out, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, env=full_env, cwd=ROOT) as child:
                try:
                    status = child.wait(timeout + 30)
                except BaseException as e:
                    child.terminate()
                    child.wait()
                    if not isinstance(e, subprocess.TimeoutExpired):
                        raise
                    status = 124
            out.seek(0)
            text = out.read()
        if status == 0:
            for line in text.splitlines():
                if line.startswith("vnodes: "):
                    say(f"    {what}: {line}")
            return parse_output(text), time.monotonic() - t0, failed, text
        failed += 1
        last = "\n".join(line[:300] for line in text.splitlines()
                         if not line.startswith("BENCH "))[-1500:]
        if failed >= attempts:
            raise JobError(f"{what}: exit status {status}\n{last}")
        say(f"    {what}: exit status {status}; once more")


@contextlib.contextmanager
def spinning(n):
    """n processes that spin, each in its own session: processors may be shared among those first."""
    procs = []
    try:
        for _ in range(n):
            procs.append(subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                          start_new_session=True))
        yield
    finally:
        for p in procs:
            p.kill()
            p.wait()


def calibrate(cpu=0):
    """Steps of nominal work per millisecond; to be called before anything else runs."""
    out = subprocess.run(["taskset", "-c", str(cpu), program("mpich", "calibrate")], check=True,
                         capture_output=True, text=True)
    return int(out.stdout)


def busy_processors():
    """How many processors others kept busy during the last second (nothing of ours may run)."""
    def ticks():
        with open("/proc/stat", encoding="utf-8") as f:
            v = [int(x) for x in f.readline().split()[1:9]]
        return sum(v) - v[3] - v[4], sum(v)
    busy, total = ticks()
    time.sleep(1)
    busy2, total2 = ticks()
    return round((busy2 - busy) / max(1, total2 - total) * (os.cpu_count() or 1), 2)


def quantile(ordered, percent):
    """Linear interpolation between closest ranks of a sorted list."""
    at = (len(ordered) - 1) * percent / 100
    lo = math.floor(at)
    hi = min(lo + 1, len(ordered) - 1)
    return ordered[lo] + (ordered[hi] - ordered[lo]) * (at - lo)


def median(values):
    return quantile(sorted(values), 50)


def summary(unit, per_rep):
    """Samples of each repetition -> what is stored of one measured point."""
    ordered = sorted(v for rep in per_rep for v in rep)
    return {
        "unit": unit,
        "n": len(ordered),
        "mean": sum(ordered) / len(ordered),
        "median": quantile(ordered, 50),
        "p99": quantile(ordered, 99),
        "quantiles": {str(q): quantile(ordered, q) for q in QUANTILES},
        "rep_medians": [median(rep) for rep in per_rep if rep],
    }


def output_of(*cmd):
    try:
        return subprocess.run(cmd, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def host_facts():
    cpu = ""
    mem = 0
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="utf-8") as f:
        mem = int(f.readline().split()[1]) // 1024
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_mib": mem, "arch": platform.machine(),
            "kernel": platform.release(),
            "tcp": output_of("sysctl", "-n", "net.ipv4.tcp_congestion_control"),
            "os": platform.freedesktop_os_release().get("PRETTY_NAME", "")}


def ompi_major():
    """The first number of Open MPI's version."""
    words = re.findall(r"\) *([0-9]+)\.", output_of("mpirun.openmpi", "--version"))
    return int(words[0]) if words else 0


def versions():
    def package(name):
        return output_of("dpkg-query", "-W", "-f", "${Version}", name)
    return {"asyncprog": output_of("git", "-C", ROOT, "describe", "--always", "--dirty"),
            "openmpi": package("openmpi-bin"), "mpich": package("mpich"),
            "ucx": package("libucx0"), "opencoarrays": package("libcoarrays-dev"),
            "gcc": output_of("gcc", "-dumpfullversion")}


def write_json(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tmp = path + ".new"
    with open(tmp, "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1)
        f.write("\n")
    os.replace(tmp, path)


def load(directory, case):
    """Contents of DIRECTORY/CASE.json, or None when there is no such file."""
    path = os.path.join(directory, case + ".json")
    try:
        with open(path, encoding="utf-8") as f:
            data = json.load(f)
    except FileNotFoundError:
        return None
    if data.get("schema") != SCHEMA:
        sys.exit(f"{path}: schema is {data.get('schema')!r}, not {SCHEMA!r}")
    return data


def lookup(data, **want):
    """The result of a case file whose fields are as wanted, or None."""
    for r in data["results"] if data else []:
        if all(r.get(k) == v for k, v in want.items()):
            return r
    return None
