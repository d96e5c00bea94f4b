/* SPDX-License-Identifier: GPL-2.0 */
/*
 * State that the datapath keeps for a connection, and the structures that it shares with user
 * space: the records it writes (crates/ebpf/src/tcp/report.rs) and the slot with its decision
 * (crates/ebpf/src/tcp/slot.rs).
 */
#ifndef FOREBAY_TCP_FLOW_H
#define FOREBAY_TCP_FLOW_H

#include "tcp_law.h"
#include "tcp_window.h"

#define RECORD_LEN 128
#define SLOT_LEN 64
/* icsk_ca_priv */
#define FLOW_LEN 104

/* The algorithm that a connection is under; 0 is a slot without a connection. */
enum mode {
	MODE_NONE,
	MODE_START,
	MODE_AGENT,
	MODE_FALLBACK,
	/* A slot without a connection that the loader is to give back. */
	MODE_STRANDED,
};

enum event {
	EVENT_OPEN = 1 << 0,
	EVENT_CLOSE = 1 << 1,
	EVENT_ROUND = 1 << 2,
	EVENT_TIMER = 1 << 3,
	EVENT_LOSS = 1 << 4,
	EVENT_RTO = 1 << 5,
	EVENT_RECOVERY_END = 1 << 6,
	EVENT_SPURIOUS = 1 << 7,
	EVENT_ECN = 1 << 8,
	EVENT_IDLE = 1 << 9,
	EVENT_SLOW_START_END = 1 << 10,
	EVENT_TRIP_RTT = 1 << 11,
	EVENT_TRIP_LOSS = 1 << 12,
	EVENT_TRIP_CE = 1 << 13,
	EVENT_FALLBACK = 1 << 14,
	EVENT_RESUMED = 1 << 15,
};
/* Events that cannot wait for a reader that looks from time to time. */
#define EVENTS_THAT_WAKE                                                                           \
	(EVENT_OPEN | EVENT_LOSS | EVENT_RTO | EVENT_TRIP_RTT | EVENT_TRIP_LOSS | EVENT_TRIP_CE)

enum report_flag {
	REPORT_APP_LIMITED = 1 << 0,
	REPORT_CWND_LIMITED = 1 << 1,
};
#define REPORT_IDLE_SHIFT 8

/* The beginning of every record. */
struct head {
	__u32 slot;
	__u32 generation;
	__u32 seq;
	__u16 events;
	__u8 ca_state;
	__u8 mode;
	__u64 at_us;
	__u64 bytes_acked;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 lost;
	__u32 retransmitted;
	__u32 in_flight;
	__u32 cwnd;
	__u32 ssthresh;
	__u32 mss;
	__u32 srtt_us;
	__u32 min_rtt_us;
};

struct report {
	struct head head;
	__u64 pacing_rate;
	__u32 rtt_us;
	__u32 rtt_min_us;
	__u32 window_us;
	__u32 acks;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 send_interval_us;
	__u32 prior_delivered;
	__u32 snd_wnd;
	__u32 packets_out;
	__u32 flags;
	/* Segments of the window that were used during a timeout; 0: the window was filled, or it is too
	 * early. */
	__u32 underused;
};

/* The first record. */
struct opened {
	struct head head;
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 netns;
	__u16 family;
	__u16 unused[7];
};

struct slot {
	/* Odd while the rest is written. */
	__u32 count;
	__u32 generation;
	/* The record that it answers, and when that was written. */
	__u32 answered;
	__u32 answered_us;
	/* Wanted, and as in the record that it answers. */
	__u32 cwnd;
	__u32 known_cwnd;
	__u32 ssthresh;
	struct law law;
	/* Sum of all words but the count and this. */
	__u32 check;
	__u64 pacing_rate;
};

enum flow_bit {
	/* The last reduction was taken back: its end does not set the window. */
	FLOW_UNDONE = 1 << 0,
	/* A decision set the pacing rate. */
	FLOW_PACED = 1 << 1,
	/* Its first record was lost. */
	FLOW_UNANNOUNCED = 1 << 2,
	/* A rate sample since the last report was limited by the application. */
	FLOW_APP_LIMITED = 1 << 3,
	/* A loss is being answered in TCP_CA_CWR. */
	FLOW_CWR_LOSS = 1 << 4,
	/* An acknowledgement since the last report found the window filled. */
	FLOW_FILLED = 1 << 5,
	/* The window was not used for a timeout: the next record reports it. */
	FLOW_UNDERUSED = 1 << 6,
	/* Nothing paced before a decision did. */
	FLOW_PACER = 1 << 7,
};

/* In icsk_ca_priv, which the kernel zeroes when it is chosen, for a connection before its SYN. */
struct flow {
	/* Index plus one; 0: none, and then nothing can be reported or decided. */
	__u16 slot;
	__u8 mode;
	__u8 bits;
	__u32 generation;
	/* Number of the last report. */
	__u32 seq;
	/* The low halves of numbers of reports: the newest that was answered, and the last that does not
	 * know of the latest event of the window. */
	__u16 answered;
	__u16 barrier;
	/* The slot's count when it was last read. */
	__u32 slot_count;
	/* When the oldest unanswered report was written. */
	__u32 waiting_us;
	__u32 reported_us;
	/* SND.NXT at the last report. */
	__u32 round_end;
	__u32 una;
	__u32 rtt_min_us;
	__u16 events;
	__u16 acks;
	/* The low halves of the counters at the last report. */
	__u16 lost;
	__u16 delivered_ce;
	/* tp->delivered when the recovery began. */
	__u32 recovery_from;
	/* Most segments outstanding since the window was last filled or said to be underused. */
	__u16 used;
	__u8 idle_timeouts;
	/* Round trips since the last report, up to 255. */
	__u8 samples;
	union {
		struct {
			struct law law;
			struct hystart hystart;
		};
		/* In MODE_FALLBACK. */
		struct curve curve;
	};
};

_Static_assert(sizeof(struct report) == RECORD_LEN, "record");
_Static_assert(sizeof(struct opened) == RECORD_LEN, "the first record");
_Static_assert(sizeof(struct slot) == SLOT_LEN, "slot");
_Static_assert(sizeof(struct flow) <= FLOW_LEN, "icsk_ca_priv");

#endif
