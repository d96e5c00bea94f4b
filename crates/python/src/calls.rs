//! Running callbacks. Ends a callback that takes too long, and all callbacks if the caller stops the run.
//!
//! ```text
//! callback ──► slot of its thread ◄── watchdog (limit), watched (ctrl-C) ──► exception in the thread
//! ```
//! Both raise the exception while they hold the interpreter, and a callback holds the interpreter while it leaves its
//! slot. So no exception arrives after its callback. A callback in C, such as `time.sleep`, gets the exception when it
//! returns to Python. A caller that waits for the thread does not wait for this.

use std::cell::RefCell;
use std::fmt;
use std::os::raw::c_long;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::units::Timestamp;
use forebay_lab::backend::Stop;
use pyo3::ffi;
use pyo3::prelude::*;

/// Time between two checks for callbacks that take too long: short compared with the least sensible limit, a
/// second.
const LOOK: Duration = Duration::from_millis(200);

/// Description of an algorithm.
pub struct About {
    /// Name in plans.
    pub name: String,
    /// Name of its class.
    pub class: String,
    /// Longest time of a callback.
    pub limit: Option<Duration>,
}

/// A callback: its algorithm and flow, and the time in the simulation.
#[derive(Clone)]
pub struct Place {
    pub about: Arc<About>,
    pub callback: &'static str,
    /// `flow bulk`.
    pub owner: Arc<str>,
    pub now: Timestamp,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { about, callback, owner, now } = self;
        let now_s = now.as_nanos() as f64 / 1e9;
        let About { name, class, .. } = &**about;
        write!(
            f,
            "algorithm {name:?} ({class}), {owner}, {callback} at {now_s} s of simulated time"
        )
    }
}

/// Why a callback must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The caller asked for the end of the run.
    Stopped,
    /// The callback takes longer than its limit.
    TooLong,
}

/// A running callback.
struct Call {
    place: Place,
    began: Instant,
    /// Ends the run of the callback.
    stop: Option<Stop>,
    /// The interpreter's id of the callback's thread.
    thread: c_long,
    /// Why the callback must end.
    why: Option<Why>,
}

/// The callback of a thread.
#[derive(Default)]
struct Slot(Mutex<Option<Call>>);

impl Slot {
    fn call(&self) -> MutexGuard<'_, Option<Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slots of all threads that have made a call, for the thread that ends late callbacks.
static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());

thread_local! {
    /// The slot of this thread, from its first call on.
    static OWN: RefCell<Option<Arc<Slot>>> = const { RefCell::new(None) };
}

fn slots() -> Vec<Arc<Slot>> {
    let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    slots.retain(|slot| slot.strong_count() > 0);
    slots.iter().filter_map(Weak::upgrade).collect()
}

fn own() -> Arc<Slot> {
    let known = OWN.with_borrow(Clone::clone);
    known.unwrap_or_else(|| {
        let slot = Arc::new(Slot::default());
        SLOTS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&slot));
        OWN.set(Some(slot.clone()));
        slot
    })
}

/// Does `call`, the callback at `place`, on this thread; also returns why it had to end, if it had to.
pub fn called<T>(_py: Python<'_>, place: Place, call: impl FnOnce() -> T) -> (T, Option<Why>) {
    let slot = own();
    // SAFETY: the interpreter is held.
    let thread = unsafe { ffi::PyThread_get_thread_ident() } as c_long;
    let (began, stop) = (Instant::now(), Stop::current());
    // A callback may run a simulation of its own on this thread.
    let outer = slot.call().replace(Call { place, began, stop, thread, why: None });
    let answer = call();
    let ended = std::mem::replace(&mut *slot.call(), outer);
    let why = ended.and_then(|it| it.why);
    if why.is_some() {
        // SAFETY: the interpreter is held. The callback may have ended before the exception came.
        unsafe { ffi::PyThreadState_SetAsyncExc(thread, ptr::null_mut()) };
    }
    (answer, why)
}

/// Ends the callbacks of runs that `stop` ends, for the reason `why` unless they have one already. Returns
/// the first of these that takes too long, and for how long.
pub fn end(py: Python<'_>, stop: &Stop, why: Option<Why>) -> Option<(Place, Duration)> {
    let is_its = |call: &Call| call.stop.as_ref().is_some_and(|it| it.is(stop));
    let exception = interrupted(py);
    let mut late = None;
    for slot in slots() {
        let mut call = slot.call();
        let Some(call) = call.as_mut().filter(|call| is_its(call)) else { continue };
        call.why = call.why.or(why);
        if call.why.is_some() {
            interrupt(call, &exception);
        }
        if call.why == Some(Why::TooLong) {
            late.get_or_insert_with(|| (call.place.clone(), call.began.elapsed()));
        }
    }
    late
}

/// Starts the thread that ends callbacks over their limit; only the first call does.
pub fn watch() {
    /// Set by the first call.
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // If the thread cannot be started, callbacks have no limit.
        drop(thread::Builder::new().name("callbacks".into()).spawn(|| {
            loop {
                thread::sleep(LOOK);
                if slots().iter().any(|slot| slot.call().as_ref().is_some_and(is_late)) {
                    Python::attach(end_late);
                }
            }
        }));
    });
}

fn is_late(call: &Call) -> bool {
    call.place.about.limit.is_some_and(|limit| call.began.elapsed() > limit)
}

fn end_late(py: Python<'_>) {
    let exception = interrupted(py);
    for slot in slots() {
        if let Some(call) = slot.call().as_mut().filter(|call| is_late(call)) {
            call.why.get_or_insert(Why::TooLong);
            interrupt(call, &exception);
        }
    }
}

/// The exception for [`interrupt`]. It is looked up before a slot is locked: an import may release the
/// interpreter, and threads that take it then wait for their slot.
fn interrupted(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    py.import("forebay.errors").and_then(|it| it.getattr("Interrupted")).ok()
}

/// Puts an exception into the thread of a callback. Each call does, because the callback may have caught the
/// previous one.
fn interrupt(call: &Call, exception: &Option<Bound<'_, PyAny>>) {
    if let Some(exception) = exception {
        // SAFETY: a `Bound` proves that the interpreter is held; the call takes a reference of its own to the
        // class.
        unsafe { ffi::PyThreadState_SetAsyncExc(call.thread, exception.as_ptr()) };
    }
}
