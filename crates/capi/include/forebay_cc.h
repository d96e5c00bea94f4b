/*
 * Congestion control in C or C++ for forebay: the callbacks of an algorithm, and what they are told.
 *
 * An algorithm is one `struct forebay_cc_algorithm`. It is told what the path did (`on_measurement`) and what cannot
 * wait (`on_event`), and answers with limits (`limits`). One acknowledgement, one report of a kernel and one epoch of
 * a bundle are all a measurement, so an algorithm counts bytes and never calls.
 *
 * - Sizes are in bytes, times in nanoseconds, rates in bits per second: each name says which.
 * - FOREBAY_CC_NONE stands for a number that is not known here. Zero is a number like any other.
 * - Times count from some start of the host, and never run backwards.
 * - An algorithm has no clock, does no I/O and draws random numbers from `seed` alone: then the same run has the same
 *   result, byte for byte.
 * - Calls for one connection come one at a time, though from different threads; those for different connections come
 *   at the same time. So whatever connections share must be constant.
 * - Limits that make no sense are brought within bounds: a window of at least the entry's least one and of at most
 *   4 GiB, a rate of at least 8 kbit/s. Nothing guards against a callback that writes where it must not, does not
 *   return or ends the process: it runs within forebay's own, with all rights of that.
 */
#ifndef FOREBAY_CC_H
#define FOREBAY_CC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface that this file describes. Any change of a structure or of a meaning gives it another number. */
#define FOREBAY_CC_ABI 1

/* A number that is not known, or a limit that is not set. */
#define FOREBAY_CC_NONE UINT64_MAX

/* What a connection starts with. */
struct forebay_cc_start {
    /* Now. */
    uint64_t now_ns;
    /* A full segment without its headers, 1 to 65536; in a sendbox a full packet with them. */
    uint64_t mss_bytes;
    /* What the host has in flight before it asks for limits, at least mss_bytes. */
    uint64_t initial_cwnd_bytes;
    /* For all random choices. */
    uint64_t seed;
};

/* What the path did since the measurement before it. Only what says "or NONE" can be unknown. */
struct forebay_cc_measurement {
    /* Time covered. */
    uint64_t interval_ns;
    /* Newly known to have been delivered. 0: nothing was, but something else is told. */
    uint64_t acked_bytes;
    /* Newly taken for lost, or NONE. */
    uint64_t lost_bytes;
    /* Newly reported as marked congestion experienced (RFC 3168), or NONE. */
    uint64_t ecn_ce_bytes;
    /* Newly reported as come with ECT(1), so without a mark (RFC 9768), or NONE. */
    uint64_t ect1_bytes;
    /* The newest round trip, or NONE. */
    uint64_t rtt_latest_ns;
    /* The least round trip of the interval, or NONE; both are known or none is. */
    uint64_t rtt_min_ns;
    /* From the departure of the newest acknowledged packet until now, or NONE. */
    uint64_t feedback_delay_ns;
    /* How long what is acknowledged was on its way, by timestamps of two clocks: differences count, or NONE. */
    uint64_t one_way_ns;
    /* Rate at which the acknowledged bytes were sent, or NONE. */
    uint64_t send_rate_bits_per_s;
    /* Rate at which they arrived, over about one round trip, or NONE. */
    uint64_t delivery_rate_bits_per_s;
    /* Rate at which they arrived, over a small part of a round trip, or NONE. */
    uint64_t train_rate_bits_per_s;
    /* Outstanding after this measurement, or NONE. */
    uint64_t in_flight_bytes;
    /* Delivered since the start. */
    uint64_t delivered_bytes;
    /* `delivered_bytes` when the newest acknowledged packet was sent: a round has passed when this reaches what
       `delivered_bytes` was when the round began. */
    uint64_t prior_delivered_bytes;
    /* `delivered_bytes` when the first of the newly lost packets was sent, or NONE. */
    uint64_t lost_prior_delivered_bytes;
    /* Bytes that wait in a sendbox, or NONE. */
    uint64_t backlog_bytes;
    /* Millionths of the interval in which the sender had nothing to send, 0 to 1000000, or NONE. */
    uint64_t idle_ppm;
    /* 1: at some time of the interval the sender had nothing to send. 0: it always had. */
    int32_t app_limited;
    /* 1: what the sender had to send filled the window. 0: it did not, so the window needs no growth.
       -1: not known, to be told from `app_limited` and `in_flight_bytes`. */
    int32_t cwnd_limited;
};

/* What must not wait for the next measurement. Ignore any number that is not listed here. */
enum forebay_cc_event {
    /* Loss was detected: once an episode, before the measurement of the same acknowledgement. */
    FOREBAY_CC_LOSS = 1,
    /* The losses of the episode are repaired. */
    FOREBAY_CC_RECOVERY_END = 2,
    /* A retransmission timeout, in QUIC persistent congestion. */
    FOREBAY_CC_RTO = 3,
    /* The last loss or timeout was spurious: restore what was before it. */
    FOREBAY_CC_SPURIOUS = 4,
    /* A congestion-experienced mark arrived. */
    FOREBAY_CC_ECN_CE = 5,
    /* Something leaves where nothing was in flight, `value` nanoseconds after the last segment. */
    FOREBAY_CC_RESUME = 6,
    /* Sending resumes after an idle period of `value` timeouts, at least 1. */
    FOREBAY_CC_IDLE_RESTART = 7,
    /* For a timeout no more than `value` bytes were used of the window. */
    FOREBAY_CC_UNDERUSED = 8,
    /* Round trips seen before, and their base, count as longer by `value` nanoseconds (negative: shorter). */
    FOREBAY_CC_RTT_SHIFT = 9,
    /* The host left slow start at a window of `value` bytes. */
    FOREBAY_CC_SLOW_START_END = 10,
    /* No feedback for so long that the host enforced no limits: what is queued now is unknown. */
    FOREBAY_CC_FEEDBACK_LOST = 11,
    /* The host enforces no limits from now on, and only reports them. */
    FOREBAY_CC_UNENFORCED = 12,
    /* The host enforces the limits from now on. */
    FOREBAY_CC_ENFORCED = 14,
    /* Round trips vary by `value` nanoseconds while the queue is short: a shorter queue cannot be measured. */
    FOREBAY_CC_DELAY_NOISE = 15
};

/* What an algorithm sets; each is NONE when the callback is called, and may stay so. */
struct forebay_cc_limits {
    /* What may be outstanding. NONE: two round trips of the pacing rate. */
    uint64_t cwnd_bytes;
    /* Slow-start threshold. A host repairs losses towards it (RFC 9937). NONE: there is none. */
    uint64_t ssthresh_bytes;
    /* Pacing rate. NONE: the host paces as it does without an algorithm's word. With both set the lower binds. */
    uint64_t pacing_rate_bits_per_s;
};

/* An algorithm. `cc` is what `create` returned for the connection, and is never looked at. */
struct forebay_cc_algorithm {
    /* FOREBAY_CC_ABI. */
    uint32_t abi;
    /* Makes the state of a connection. NULL is passed on like any other answer, for an algorithm without a state. */
    void *(*create)(const struct forebay_cc_start *start);
    /* Frees it: the last call for the connection. */
    void (*destroy)(void *cc);
    /* Takes what the path did. */
    void (*on_measurement)(void *cc, uint64_t now_ns, const struct forebay_cc_measurement *measurement);
    /* Takes what could not wait, one of enum forebay_cc_event; `value` is 0 where none is named there. */
    void (*on_event)(void *cc, uint64_t now_ns, uint32_t event, int64_t value);
    /* Sets the limits in force; asked for after every call above, and more often. */
    void (*limits)(const void *cc, struct forebay_cc_limits *limits);
    /* Time at which it wants to be called without a measurement, or NONE. May be NULL: never. */
    uint64_t (*next_timer_ns)(const void *cc);
    /* Called at or after that time. May be NULL. */
    void (*on_timer)(void *cc, uint64_t now_ns);
    /* A word for logs, such as "slow_start", in UTF-8; it must live as long as the program. May be NULL. */
    const char *(*phase)(const void *cc);
};

#ifdef __cplusplus
}
#endif

#endif
