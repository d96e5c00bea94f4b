/*
 * Congestion control in C or C++ for forebay: the callbacks of an algorithm and their arguments.
 *
 * An algorithm is one `struct forebay_cc_algorithm`. The host passes it measurements of the path (`on_measurement`) and
 * urgent events (`on_event`), and asks it for limits (`limits`). A measurement covers one acknowledgement, one report
 * of a kernel or one epoch of a bundle, so an algorithm counts bytes and never calls.
 *
 * - Sizes are in bytes, times in nanoseconds, rates in bits per second: each name says which.
 * - FOREBAY_CC_NONE stands for a number that is not known here. Zero is a number like any other.
 * - Times count from some start of the host, and never run backwards.
 * - An algorithm has no clock, does no I/O and draws random numbers from `seed` alone: then the same run has the same
 *   result, byte for byte.
 * - Calls for one connection come one at a time, though from different threads. Calls for different connections may
 *   come at the same time, so data that connections share must be constant.
 * - The host clamps limits: a window to between the least window of the registry entry and 4 GiB, a rate to at least
 *   8 kbit/s. Nothing guards against a callback that writes where it must not, does not return or ends the process:
 *   it runs within forebay's process, with all of its rights.
 */
#ifndef FOREBAY_CC_H
#define FOREBAY_CC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the interface in this file. Any change of a structure or of a meaning changes it. */
#define FOREBAY_CC_ABI 1

/* An unknown number, or a limit that is not set. */
#define FOREBAY_CC_NONE UINT64_MAX

/* State of a connection at its start. */
struct forebay_cc_start {
    /* Now. */
    uint64_t now_ns;
    /* A full segment without its headers, 1 to 65536; in a sendbox a full packet with them. */
    uint64_t mss_bytes;
    /* Bytes that the host has in flight before it asks for limits, at least mss_bytes. */
    uint64_t initial_cwnd_bytes;
    /* Seed of all random choices. */
    uint64_t seed;
};

/* Behaviour of the path since the previous measurement. Only fields with "or NONE" can be unknown. */
struct forebay_cc_measurement {
    /* Time covered. */
    uint64_t interval_ns;
    /* Bytes newly known to have been delivered. 0: none, but other fields have news. */
    uint64_t acked_bytes;
    /* Bytes newly taken for lost, or NONE. */
    uint64_t lost_bytes;
    /* Bytes newly reported as marked congestion experienced (RFC 3168), or NONE. */
    uint64_t ecn_ce_bytes;
    /* Bytes newly reported as received with ECT(1), so without a mark (RFC 9768), or NONE. */
    uint64_t ect1_bytes;
    /* The newest round trip, or NONE. */
    uint64_t rtt_latest_ns;
    /* The least round trip of the interval, or NONE. Both round trips are known, or neither is. */
    uint64_t rtt_min_ns;
    /* From the departure of the newest acknowledged packet until now, or NONE. */
    uint64_t feedback_delay_ns;
    /* One-way delay of the acknowledged data, from timestamps of two clocks: only differences count. Or NONE. */
    uint64_t one_way_ns;
    /* Rate at which the acknowledged bytes were sent, or NONE. */
    uint64_t send_rate_bits_per_s;
    /* Rate at which they arrived, over about one round trip, or NONE. */
    uint64_t delivery_rate_bits_per_s;
    /* Rate at which they arrived, over a small part of a round trip, or NONE. */
    uint64_t train_rate_bits_per_s;
    /* Bytes outstanding after this measurement, or NONE. */
    uint64_t in_flight_bytes;
    /* Bytes delivered since the start. */
    uint64_t delivered_bytes;
    /* `delivered_bytes` when the newest acknowledged packet was sent. A round ends when this reaches the value that
       `delivered_bytes` had at the start of the round. */
    uint64_t prior_delivered_bytes;
    /* `delivered_bytes` when the first of the newly lost packets was sent, or NONE. */
    uint64_t lost_prior_delivered_bytes;
    /* Bytes that wait in a sendbox, or NONE. */
    uint64_t backlog_bytes;
    /* Millionths of the interval in which the sender had nothing to send, 0 to 1000000, or NONE. */
    uint64_t idle_ppm;
    /* 1: at some time of the interval the sender had nothing to send. 0: it always had. */
    int32_t app_limited;
    /* 1: the sender's data filled the window. 0: it did not, so the window needs no growth.
       -1: not known; infer it from `app_limited` and `in_flight_bytes`. */
    int32_t cwnd_limited;
};

/* Events that must not wait for the next measurement. Ignore any number that is not listed here. */
enum forebay_cc_event {
    /* Loss was detected: once an episode, before the measurement of the same acknowledgement. */
    FOREBAY_CC_LOSS = 1,
    /* The losses of the episode are repaired. */
    FOREBAY_CC_RECOVERY_END = 2,
    /* A retransmission timeout, in QUIC persistent congestion. */
    FOREBAY_CC_RTO = 3,
    /* The last loss or timeout was spurious: restore the state before it. */
    FOREBAY_CC_SPURIOUS = 4,
    /* A congestion-experienced mark arrived. */
    FOREBAY_CC_ECN_CE = 5,
    /* The host sends while nothing is in flight, `value` nanoseconds after the last segment. */
    FOREBAY_CC_RESUME = 6,
    /* Sending resumes after an idle period of `value` timeouts, at least 1. */
    FOREBAY_CC_IDLE_RESTART = 7,
    /* For one timeout, the sender used at most `value` bytes of the window. */
    FOREBAY_CC_UNDERUSED = 8,
    /* Round trips seen before, and their base, count as longer by `value` nanoseconds (negative: shorter). */
    FOREBAY_CC_RTT_SHIFT = 9,
    /* The host left slow start at a window of `value` bytes. */
    FOREBAY_CC_SLOW_START_END = 10,
    /* Feedback was missing, so the host stopped enforcing limits: the current queue is unknown. */
    FOREBAY_CC_FEEDBACK_LOST = 11,
    /* The host enforces no limits from now on, and only reports them. */
    FOREBAY_CC_UNENFORCED = 12,
    /* The host enforces the limits from now on. */
    FOREBAY_CC_ENFORCED = 14,
    /* Round trips vary by `value` nanoseconds while the queue is short: a shorter queue cannot be measured. */
    FOREBAY_CC_DELAY_NOISE = 15
};

/* Limits that an algorithm sets. Each is NONE when the callback is called, and may stay so. */
struct forebay_cc_limits {
    /* Largest number of outstanding bytes. NONE: two round trips of the pacing rate. */
    uint64_t cwnd_bytes;
    /* Slow-start threshold. A host repairs losses towards it (RFC 9937). NONE: no threshold. */
    uint64_t ssthresh_bytes;
    /* Pacing rate. NONE: the host paces by its own rules. If window and rate are set, the lower binds. */
    uint64_t pacing_rate_bits_per_s;
};

/* An algorithm. `cc` is the pointer that `create` returned for the connection; the host never dereferences it. */
struct forebay_cc_algorithm {
    /* FOREBAY_CC_ABI. */
    uint32_t abi;
    /* Makes the state of a connection. NULL is passed on like any other pointer, for an algorithm without a state. */
    void *(*create)(const struct forebay_cc_start *start);
    /* Frees the state: the last call for the connection. */
    void (*destroy)(void *cc);
    /* Takes a measurement of the path. */
    void (*on_measurement)(void *cc, uint64_t now_ns, const struct forebay_cc_measurement *measurement);
    /* Takes an event, one of enum forebay_cc_event. `value` is 0 if the event has none. */
    void (*on_event)(void *cc, uint64_t now_ns, uint32_t event, int64_t value);
    /* Sets the limits in force. The host calls it after every call above, and more often. */
    void (*limits)(const void *cc, struct forebay_cc_limits *limits);
    /* Time at which the algorithm wants `on_timer` to be called, or NONE. May be NULL: never. */
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
