/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SipHash-1-3 of whole 64-bit words (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012,
 * with one compression and three finalisation rounds).
 */
#ifndef FOREBAY_SIPHASH_H
#define FOREBAY_SIPHASH_H

#include "kernel.h"

/* The state after the words so far. Words that several hashes begin with need be taken in only
 * once. */
struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotate(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void siphash_round(struct siphash *state)
{
	state->v0 += state->v1;
	state->v1 = rotate(state->v1, 13) ^ state->v0;
	state->v0 = rotate(state->v0, 32);
	state->v2 += state->v3;
	state->v3 = rotate(state->v3, 16) ^ state->v2;
	state->v0 += state->v3;
	state->v3 = rotate(state->v3, 21) ^ state->v0;
	state->v2 += state->v1;
	state->v1 = rotate(state->v1, 17) ^ state->v2;
	state->v2 = rotate(state->v2, 32);
}

static __always_inline struct siphash siphash_begin(__u64 key0, __u64 key1)
{
	return (struct siphash){
		.v0 = key0 ^ 0x736f6d6570736575ULL,
		.v1 = key1 ^ 0x646f72616e646f6dULL,
		.v2 = key0 ^ 0x6c7967656e657261ULL,
		.v3 = key1 ^ 0x7465646279746573ULL,
	};
}

static __always_inline void siphash_word(struct siphash *state, __u64 word)
{
	state->v3 ^= word;
	siphash_round(state);
	state->v0 ^= word;
}

/* The hash of `words` words, all of which have been taken in. */
static __always_inline __u64 siphash_end(struct siphash state, int words)
{
	/* The last word holds the input's length, modulo 256, in its highest byte. */
	siphash_word(&state, (__u64)(8 * words) << 56);
	state.v2 ^= 0xff;
	siphash_round(&state);
	siphash_round(&state);
	siphash_round(&state);
	return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

#endif
