/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether the process that a program serves is alive and makes progress. A process that hangs does not
 * beat, and its traffic takes the kernel's path again.
 */
#ifndef FOREBAY_HEARTBEAT_H
#define FOREBAY_HEARTBEAT_H

#include "kernel.h"

/* Age of the last beat from which everything passes; 0: the process need not beat. */
const volatile __u64 stale_after_ns;

/* When the process last made progress, CLOCK_MONOTONIC. User space writes it through mmap. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} heartbeat SEC(".maps");

static __always_inline bool beating(void)
{
	__u32 zero = 0;
	__u64 *beat;

	if (!stale_after_ns)
		return true;
	beat = bpf_map_lookup_elem(&heartbeat, &zero);
	if (!beat)
		return false;
	/* Signed: the beat may come between reading the clock and reading the word. */
	return (__s64)(bpf_ktime_get_ns() - *(volatile __u64 *)beat) < (__s64)stale_after_ns;
}

#endif
