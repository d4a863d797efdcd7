"""SimSo on periodic tasks: wake-ups and switches a second, beside our own scheduler's.

    simso_edf.py --tasks N --cpus C --milliseconds T

N tasks that are woken every 2 ms and compute for a share of it so that half of each CPU is
used, under EDF with a queue for each CPU. Its log is off
but for what the counts need: jobs that were activated, and those that began or went on.
Prints one JSON line: {"events", "wakeups", "switches", "seconds"}.
"""

import argparse
import json
import time

from simso.configuration import Configuration
from simso.core import Model
from simso.core.JobEvent import JobEvent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--cpus", type=int, required=True)
    parser.add_argument("--milliseconds", type=int, required=True)
    args = parser.parse_args()

    configuration = Configuration()
    configuration.duration = args.milliseconds * configuration.cycles_per_ms
    each = 2 * 0.5 * args.cpus / args.tasks
    for i in range(args.tasks):
        configuration.add_task(
            name=f"T{i}", identifier=i, period=2, activation_date=i * 2 / args.tasks, wcet=each, deadline=2
        )
    for i in range(args.cpus):
        configuration.add_processor(name=f"CPU {i}", identifier=i)
    configuration.scheduler_info.clas = "simso.schedulers.P_EDF"
    configuration.check_all()
    model = Model(configuration)
    start = time.perf_counter()
    model.run_model()
    seconds = time.perf_counter() - start
    wakeups = switches = 0
    for task in model.task_list:
        for event in task._monitor:
            kind = event[1].event
            wakeups += kind == JobEvent.ACTIVATE
            switches += kind == JobEvent.EXECUTE
    print(json.dumps({"events": wakeups + switches, "wakeups": wakeups, "switches": switches, "seconds": seconds}))


if __name__ == "__main__":
    main()
