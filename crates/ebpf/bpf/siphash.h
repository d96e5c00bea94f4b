/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SipHash-1-3 of 64 bytes (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, with
 * one compression and three finalisation rounds).
 */
#ifndef FOREBAY_SIPHASH_H
#define FOREBAY_SIPHASH_H

#include "kernel.h"

#define SIPHASH_WORDS 8

static __always_inline __u64 rotate(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

#define SIP_ROUND                \
	do {                     \
		v0 += v1;        \
		v1 = rotate(v1, 13) ^ v0; \
		v0 = rotate(v0, 32);      \
		v2 += v3;        \
		v3 = rotate(v3, 16) ^ v2; \
		v0 += v3;        \
		v3 = rotate(v3, 21) ^ v0; \
		v2 += v1;        \
		v1 = rotate(v1, 17) ^ v2; \
		v2 = rotate(v2, 32);      \
	} while (0)

static __always_inline __u64 siphash13(const __u64 *words, __u64 key0, __u64 key1)
{
	__u64 v0 = key0 ^ 0x736f6d6570736575ULL;
	__u64 v1 = key1 ^ 0x646f72616e646f6dULL;
	__u64 v2 = key0 ^ 0x6c7967656e657261ULL;
	__u64 v3 = key1 ^ 0x7465646279746573ULL;
	/* The last word holds the input's length, modulo 256, in its highest byte. */
	const __u64 last = (__u64)(8 * SIPHASH_WORDS) << 56;

#pragma unroll
	for (int i = 0; i < SIPHASH_WORDS; i++) {
		v3 ^= words[i];
		SIP_ROUND;
		v0 ^= words[i];
	}
	v3 ^= last;
	SIP_ROUND;
	v0 ^= last;
	v2 ^= 0xff;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

#endif
