/*
 * my_cc: additive increase, multiplicative decrease (AIMD), as TCP Reno has it. A place to begin.
 *
 *   slow start    cwnd < ssthresh: cwnd += bytes acknowledged
 *   avoidance     cwnd += mss for each window acknowledged
 *   loss, mark    ssthresh = cwnd / 2, at least 2 mss; cwnd = ssthresh; once an episode
 *   timeout       the same ssthresh; cwnd = 1 mss
 *
 * forebay_cc.h defines the arguments of the callbacks, and their contract.
 */
#include "forebay_cc.h"

#include <stdlib.h>

/* Products of a window and a segment fit into 64 bits. */
static const uint64_t CWND_MAX = UINT64_C(1) << 32;
static const uint64_t MSS_MAX = UINT64_C(1) << 16;

enum phase {
    OPEN,
    /* Losses are being repaired: no growth, and no further reduction. */
    RECOVERY,
    /* After a timeout: growth, but no reduction for losses of before. */
    TIMEOUT,
    /* After a reduction that no FOREBAY_CC_RECOVERY_END ends: until a window is acknowledged. */
    REDUCED
};

struct connection {
    uint64_t mss_bytes;
    uint64_t initial_bytes;
    uint64_t cwnd_bytes;
    uint64_t ssthresh_bytes;
    /* Growth not yet a byte, in parts of 1/cwnd byte. */
    uint64_t growth;
    enum phase phase;
    /* In REDUCED: bytes yet to be acknowledged. */
    uint64_t left_bytes;
    /* Window and ssthresh before the last reduction; 0: there is none to take back. */
    uint64_t saved_cwnd_bytes;
    uint64_t saved_ssthresh_bytes;
};

static uint64_t within(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static void set_cwnd(struct connection *cc, uint64_t bytes)
{
    cc->cwnd_bytes = within(bytes, cc->mss_bytes, CWND_MAX);
    cc->growth = 0;
}

static void reduce(struct connection *cc)
{
    cc->saved_cwnd_bytes = cc->cwnd_bytes;
    cc->saved_ssthresh_bytes = cc->ssthresh_bytes;
    cc->ssthresh_bytes = within(cc->cwnd_bytes / 2, 2 * cc->mss_bytes, CWND_MAX);
    set_cwnd(cc, cc->ssthresh_bytes);
}

/* A sign of congestion that no event begins or ends an episode for: once a window. */
static void on_mark(struct connection *cc)
{
    if (cc->phase == OPEN) {
        cc->left_bytes = cc->cwnd_bytes;
        reduce(cc);
        cc->phase = REDUCED;
    }
}

static void grow(struct connection *cc, uint64_t acked_bytes)
{
    /* An acknowledgement of more than a window counts as one window. */
    uint64_t acked = within(acked_bytes, 0, cc->cwnd_bytes);
    uint64_t window = cc->cwnd_bytes;
    uint64_t growth = cc->growth + acked * cc->mss_bytes;

    if (window < cc->ssthresh_bytes) {
        set_cwnd(cc, within(window + acked, 0, cc->ssthresh_bytes));
        return;
    }
    set_cwnd(cc, window + growth / window);
    cc->growth = growth % window;
}

static void *create(const struct forebay_cc_start *start)
{
    struct connection *cc = calloc(1, sizeof *cc);

    if (cc == NULL)
        abort();
    cc->mss_bytes = within(start->mss_bytes, 1, MSS_MAX);
    cc->initial_bytes = within(start->initial_cwnd_bytes, cc->mss_bytes, CWND_MAX);
    cc->ssthresh_bytes = CWND_MAX;
    set_cwnd(cc, cc->initial_bytes);
    return cc;
}

static void destroy(void *state)
{
    free(state);
}

static void on_measurement(void *state, uint64_t now_ns, const struct forebay_cc_measurement *measured)
{
    struct connection *cc = state;
    int filled = measured->cwnd_limited < 0 ? !measured->app_limited : measured->cwnd_limited;

    (void)now_ns;
    /* A sendbox sees losses and repairs none, so no event comes with them. */
    if (measured->lost_bytes != FOREBAY_CC_NONE && measured->lost_bytes > 0)
        on_mark(cc);
    if (cc->phase == RECOVERY)
        return;
    if (cc->phase == REDUCED) {
        cc->left_bytes -= within(measured->acked_bytes, 0, cc->left_bytes);
        if (cc->left_bytes == 0)
            cc->phase = OPEN;
        return;
    }
    /* A window that was not filled needs no growth. */
    if (filled)
        grow(cc, measured->acked_bytes);
}

static void on_event(void *state, uint64_t now_ns, uint32_t event, int64_t value)
{
    struct connection *cc = state;

    (void)now_ns;
    (void)value;
    switch (event) {
    case FOREBAY_CC_LOSS:
        if (cc->phase != REDUCED)
            reduce(cc);
        cc->phase = RECOVERY;
        break;
    case FOREBAY_CC_RECOVERY_END:
        cc->phase = OPEN;
        break;
    case FOREBAY_CC_RTO:
        if (cc->phase == OPEN)
            reduce(cc);
        set_cwnd(cc, cc->mss_bytes);
        cc->phase = TIMEOUT;
        break;
    case FOREBAY_CC_ECN_CE:
        on_mark(cc);
        break;
    case FOREBAY_CC_SPURIOUS:
        if (cc->saved_cwnd_bytes > 0) {
            set_cwnd(cc, within(cc->saved_cwnd_bytes, cc->cwnd_bytes, CWND_MAX));
            cc->ssthresh_bytes = cc->saved_ssthresh_bytes;
            cc->saved_cwnd_bytes = 0;
        }
        cc->phase = OPEN;
        break;
    case FOREBAY_CC_IDLE_RESTART:
    case FOREBAY_CC_FEEDBACK_LOST:
        /* The capacity of the path may have changed by now. */
        set_cwnd(cc, within(cc->cwnd_bytes, 0, cc->initial_bytes));
        break;
    }
}

static void limits(const void *state, struct forebay_cc_limits *limits)
{
    const struct connection *cc = state;

    limits->cwnd_bytes = cc->cwnd_bytes;
    if (cc->ssthresh_bytes < CWND_MAX)
        limits->ssthresh_bytes = cc->ssthresh_bytes;
}

static const char *phase(const void *state)
{
    const struct connection *cc = state;

    if (cc->phase == RECOVERY || cc->phase == REDUCED)
        return "reduced";
    return cc->cwnd_bytes < cc->ssthresh_bytes ? "slow_start" : "avoidance";
}

/* The callbacks that src/lib.rs makes a registry entry from. */
const struct forebay_cc_algorithm my_cc = {
    .abi = FOREBAY_CC_ABI,
    .create = create,
    .destroy = destroy,
    .on_measurement = on_measurement,
    .on_event = on_event,
    .limits = limits,
    .phase = phase,
};
