/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few declarations of the kernel's stable BPF interface (include/uapi/linux/bpf.h) that the
 * programs here use, so that they build without kernel headers and without a vmlinux.h.
 */
#ifndef FOREBAY_KERNEL_H
#define FOREBAY_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef signed short __s16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

#include <bpf/bpf_helpers.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "keys and sampling blocks are laid out for little-endian machines"
#endif

/* enum bpf_map_type */
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_LPM_TRIE 11
#define BPF_MAP_TYPE_XSKMAP 17
#define BPF_MAP_TYPE_QUEUE 22
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_MAP_TYPE_RINGBUF 27

/* map_flags of BPF_MAP_CREATE */
#define BPF_F_NO_PREALLOC (1U << 0)
#define BPF_F_MMAPABLE (1U << 10)

/* bpf_sk_storage_get() */
#define BPF_SK_STORAGE_GET_F_CREATE (1ULL << 0)

/* bpf_ringbuf_submit() */
#define BPF_RB_NO_WAKEUP (1ULL << 0)
#define BPF_RB_FORCE_WAKEUP (1ULL << 1)

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP,
	XDP_PASS,
	XDP_TX,
	XDP_REDIRECT,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

/* The verifier finds the lock in a map value by this type's name. */
struct bpf_spin_lock {
	__u32 val;
};

#endif
