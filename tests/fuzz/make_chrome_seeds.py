"""Makes seeds for the Chrome fuzzers from the traces in tests/data/traces.

    python3 tests/fuzz/make_chrome_seeds.py OUT [STEPSCOPE]

Each seed has a trace's header and, for each kind of event (category, first word
of the name, keys), the first few events and those with the same correlation ID.
With the path of the program, two seeds are also written in our own dialect.
"""

import collections
import gzip
import json
import pathlib
import subprocess
import sys

TRACES = pathlib.Path(__file__).parent.parent / "data" / "traces"
NAMES = {
    "resnet50_v100_workers0.pt.trace.json.gz": "v100_2021",
    "h2d_a100_pageable.json.gz": "copies_2022",
    "dlrm_v100_8ranks/rank0.json.gz": "ddp_2023",
    "alexnet_a100_cuda_sync.json.gz": "syncs_2023",
    "part_a100_bs2.json.gz": "memory_2024",
    "gloo_cpu_rank34of300.json.gz": "gloo_2024",
    "toy_mi250.json.gz": "rocm_2025",
    "vllm_decode_mi300x_graph.json.gz": "graph_2026",
    "compiled_mi300x_triton.json.gz": "triton_2026",
}
OWN = {"rocm_2025": ".json", "ddp_2023": ".pt.trace.json"}
PER_KIND = 2
MOST_BYTES = 9000


def kind_of(event):
    words = str(event.get("name", "")).replace(":", " ").replace("#", " ")
    return (event.get("ph"), event.get("cat"), words.split(" ")[0][:24],
            tuple(sorted(event.get("args", {}))))


def correlation_of(event):
    return event.get("args", {}).get("correlation")


def chosen(events):
    """Returns the events of a seed in the order of the file."""
    seen = collections.Counter()
    kept = set()
    wanted = set()
    size = 0
    for rare in (True, False):
        counts = collections.Counter(kind_of(event) for event in events)
        for index, event in enumerate(events):
            kind = kind_of(event)
            if (counts[kind] < 50) != rare or seen[kind] >= PER_KIND:
                continue
            seen[kind] += 1
            size += len(json.dumps(event))
            if size > MOST_BYTES:
                break
            kept.add(index)
            if correlation_of(event) is not None:
                wanted.add(correlation_of(event))
        size = size // 2
    kept.update(index for index, event in enumerate(events)
                if correlation_of(event) in wanted and len(kept) < 50)
    return [events[index] for index in sorted(kept)]


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, seed in NAMES.items():
        with gzip.open(TRACES / name, "rt", errors="surrogateescape") as file:
            trace = json.load(file, strict=False)
        events = chosen(trace["traceEvents"])
        header = {key: value for key, value in trace.items()
                  if key not in ("traceEvents", "traceName")
                  and len(json.dumps(value)) < 1000}
        path = out / f"{seed}.json"
        path.write_text(json.dumps(header)[:-1] + ', "traceEvents": [\n' +
                        ",\n".join(json.dumps(event) for event in events) +
                        "\n]}\n", errors="surrogateescape")
        if seed in OWN and len(sys.argv) > 2:
            subprocess.run([sys.argv[2], "convert", path,
                            out / f"own_{seed}{OWN[seed]}"], check=True)


main()
