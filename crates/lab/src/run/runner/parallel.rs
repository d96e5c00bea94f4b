//! Several runs in parallel, each on its own thread. Reports are processed in the order of the jobs, so the
//! store does not depend on the number of threads.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::{Job, Ledger, Report, Wanted, run_attempts};
use crate::backend::Backend;
use crate::run::{Options, RunError};

/// Jobs for each thread that may be ahead of the first unwritten job; their rows wait in memory.
const LEAD: usize = 4;

/// A thread's message about the job with this index.
enum Message {
    Report(Report),
    /// The run is over; at worst the back end panicked.
    Over(thread::Result<Result<(), RunError>>),
}

/// Runs the `wanted` jobs, `options.jobs` at a time.
pub fn run(
    jobs: &[Job],
    wanted: &[Wanted],
    backend: &dyn Backend,
    options: &Options,
    ledger: &mut Ledger<'_>,
) -> Result<(), RunError> {
    let (order, orders) = channel();
    let (told, heard) = channel();
    let orders = Mutex::new(orders);
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            let (orders, told) = (&orders, told.clone());
            scope.spawn(move || work(jobs, wanted, backend, options, orders, &told));
        }
        // The threads end when the channel of orders does, also after an error.
        Desk { wanted, order, next: 0, busy: 0, waiting: BTreeMap::new() }.serve(
            options.jobs,
            &heard,
            ledger,
        )
    })
}

fn work(
    jobs: &[Job],
    wanted: &[Wanted],
    backend: &dyn Backend,
    options: &Options,
    orders: &Mutex<Receiver<usize>>,
    told: &Sender<(usize, Message)>,
) {
    loop {
        let order = orders.lock().map(|orders| orders.recv());
        let Ok(Ok(index)) = order else { return };
        let mut report = |report| {
            // After another job has failed, nothing receives reports any more.
            let _ = told.send((index, Message::Report(report)));
            Ok(())
        };
        let attempts = || run_attempts(&jobs[index], &wanted[index], backend, options, &mut report);
        let result = catch_unwind(AssertUnwindSafe(attempts));
        if told.send((index, Message::Over(result))).is_err() {
            return;
        }
    }
}

/// Hands out jobs and receives reports.
struct Desk<'a> {
    wanted: &'a [Wanted],
    order: Sender<usize>,
    next: usize,
    busy: usize,
    /// Messages about jobs that are not next in order.
    waiting: BTreeMap<usize, Vec<Message>>,
}

impl Desk<'_> {
    fn serve(
        mut self,
        threads: usize,
        heard: &Receiver<(usize, Message)>,
        ledger: &mut Ledger<'_>,
    ) -> Result<(), RunError> {
        for turn in 0..self.wanted.len() {
            if self.wanted[turn].is_over {
                ledger.reuse(turn);
                continue;
            }
            let mut is_over = false;
            for message in self.waiting.remove(&turn).unwrap_or_default() {
                is_over |= take(ledger, turn, message)?;
            }
            while !is_over {
                self.give_out(turn, threads);
                let (index, message) = heard.recv().expect("the job of this turn is under way");
                self.busy -= usize::from(matches!(message, Message::Over(_)));
                match message {
                    message if index == turn => is_over = take(ledger, turn, message)?,
                    Message::Report(report @ (Report::Begins(_) | Report::UnderWay(_))) => {
                        ledger.take(index, report)?;
                    }
                    message => self.waiting.entry(index).or_default().push(message),
                }
            }
        }
        Ok(())
    }

    /// Keeps the threads busy with the next jobs.
    fn give_out(&mut self, turn: usize, threads: usize) {
        while self.next < self.wanted.len().min(turn + LEAD * threads) && self.busy < threads {
            if !self.wanted[self.next].is_over {
                self.order.send(self.next).expect("the threads live as long as this desk");
                self.busy += 1;
            }
            self.next += 1;
        }
    }
}

/// Processes a message about the job that is next in order; true if it was the job's last.
fn take(ledger: &mut Ledger<'_>, turn: usize, message: Message) -> Result<bool, RunError> {
    match message {
        Message::Report(report) => ledger.take(turn, report).map(|()| false),
        Message::Over(Ok(result)) => result.map(|()| true),
        Message::Over(Err(panic)) => resume_unwind(panic),
    }
}
