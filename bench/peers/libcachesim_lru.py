"""libCacheSim's LRU on the page ids that our own simulator is timed with.

    libcachesim_lru.py --ids FILE --cache-pages N [--hashpower N]

FILE holds one little-endian u32 for each access: the page in the low 31 bits, a
write flag in the top bit. Beside it stands, made once, the same trace in
libCacheSim's fastest format (oracleGeneral). Its native loop reads it; Python
only takes the time around. Prints one JSON line:
{"requests", "seconds", "miss_ratio", "hashpower"}.
"""

import argparse
import json
import os
import time

import numpy
import libcachesim

# Packed: time in seconds, id, size, index of the next access to this id (which
# LRU doesn't read; -2 stands for "none").
ORACLE_GENERAL = numpy.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
CHUNK = 1 << 20


def convert(ids_path):
    """Writes FILE.oracleGeneral beside FILE, unless a newer one is there."""
    path = ids_path + ".oracleGeneral"
    if os.path.exists(path) and os.path.getmtime(path) >= os.path.getmtime(ids_path):
        return path
    ids = numpy.memmap(ids_path, dtype="<u4", mode="r")
    partial = path + ".partial"
    with open(partial, "wb") as out:
        for start in range(0, len(ids), CHUNK):
            part = ids[start : start + CHUNK]
            rows = numpy.empty(len(part), dtype=ORACLE_GENERAL)
            rows["time"] = start // CHUNK
            rows["id"] = part & 0x7FFFFFFF
            rows["size"] = 1
            rows["next"] = -2
            out.write(rows.tobytes())
    os.replace(partial, path)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", required=True)
    parser.add_argument("--cache-pages", type=int, required=True)
    parser.add_argument("--hashpower", type=int, default=24, help="log2 of its hash table's size; its own default is 24")
    args = parser.parse_args()

    path = convert(args.ids)
    requests = os.path.getsize(path) // ORACLE_GENERAL.itemsize
    reader = libcachesim.TraceReader(
        path,
        trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE,
        reader_init_params=libcachesim.ReaderInitParam(ignore_obj_size=True),
    )
    # The first pass only brings the trace into memory, since ours starts with
    # its ids there too; a tiny cache makes it short.
    libcachesim.FIFO(1, hashpower=10).process_trace(reader)
    reader.reset()
    cache = libcachesim.LRU(args.cache_pages, hashpower=args.hashpower)
    start = time.perf_counter()
    miss_ratio, _ = cache.process_trace(reader)
    seconds = time.perf_counter() - start
    print(json.dumps({"requests": requests, "seconds": seconds, "miss_ratio": miss_ratio, "hashpower": args.hashpower}))


if __name__ == "__main__":
    main()
