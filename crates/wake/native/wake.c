/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The header for this machine, with names for src/raw.rs. */
#include "../include/homenode_wake.h"

void hn_native_choose(const struct hn_wake_view *view, const struct hn_wake_up *up,
                      struct hn_wake_task *waker, struct hn_wake_task *wakee,
                      struct hn_wake_choice *choice)
{
    hn_wake_choose(view, up, waker, wakee, choice);
}

void hn_native_enter_idle(const struct hn_wake_view *view, hn_u32 cpu)
{
    hn_wake_enter_idle(view, cpu);
}

hn_u32 hn_native_nr_idle_scan(hn_u64 sum_util, hn_u32 llc_size, hn_u32 imbalance_pct)
{
    return hn_wake_nr_idle_scan(sum_util, llc_size, imbalance_pct);
}
