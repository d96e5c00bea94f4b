//! Work on its own thread, while the calling thread shows the progress and handles ctrl-C.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::text;
use forebay_lab::backend::Stop;
use pyo3::prelude::*;

use crate::calls::{self, Why};
use crate::error;

/// Time between two checks for signals: people see ctrl-C act at once.
const LOOK: Duration = Duration::from_millis(50);
/// Longest wait for a thread whose callback must end. In Python it ends at once. In C it may sleep for long;
/// the thread is then left behind. This and [`LOOK`] together stay below the second that ctrl-C may take.
const GRACE: Duration = Duration::from_millis(600);

/// An exception of a callback. It passes as a panic through the simulation that it ends.
struct Raised(PyErr);

thread_local! {
    /// The newest exception of a callback on this thread, for callers that cannot see the payload of a panic.
    static NEWEST: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Why this thread makes no further callbacks.
    static DOOM: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Ends the work of this thread with the exception of a callback.
pub fn raise(error: PyErr) -> ! {
    let newest = Python::attach(|py| error.clone_ref(py));
    NEWEST.set(Some(newest));
    resume_unwind(Box::new(Raised(error)))
}

/// Ends the work of this thread, and each later callback on it, until [`take_raised`] is called.
pub fn doom(error: PyErr) -> ! {
    DOOM.set(Some(Python::attach(|py| error.clone_ref(py))));
    raise(error)
}

/// Ends the work of this thread after [`doom`].
pub fn raise_if_doomed() {
    let doom =
        DOOM.with_borrow(|doom| doom.as_ref().map(|it| Python::attach(|py| it.clone_ref(py))));
    if let Some(error) = doom {
        raise(error);
    }
}

/// The newest exception of callbacks on this thread since the last call.
pub fn take_raised() -> Option<PyErr> {
    DOOM.set(None);
    NEWEST.take()
}

/// Does `work`, which checks a [`Stop`] and reports progress, and calls `told` with each report.
///
/// The interpreter is released except during `told`. An exception from `told`, ctrl-C, and a request through
/// `asked` each stop the work and are the result. An exception in a callback of `work` is the result, too. A
/// panic becomes an exception. If a callback does not end when it must, it is left behind with the thread of
/// `work`.
pub fn watched<T: Send + 'static, M: Send + 'static>(
    py: Python<'_>,
    asked: Option<&Stop>,
    work: impl FnOnce(&Stop, &mut dyn FnMut(M)) -> T + Send + 'static,
    mut told: impl FnMut(M) -> PyResult<()>,
) -> PyResult<T> {
    let stop = Stop::default();
    let (tell, mut heard) = channel();
    let stopped = stop.clone();
    let worker = thread::spawn(move || {
        // The thread is attached once, so that the interpreter need not register it for each callback.
        Python::attach(|py| {
            py.detach(move || {
                work(&stopped, &mut |message| {
                    // If the caller has left this thread behind, nothing receives messages.
                    let _ = tell.send(message);
                })
            })
        })
    });
    let mut raised = None;
    let mut left: Option<Instant> = None;
    loop {
        let done = match py.detach(|| next(&mut heard)) {
            Ok(message) if raised.is_none() => told(message),
            Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let done = done.and_then(|()| py.check_signals());
        let done = done.and_then(|()| match asked {
            Some(asked) if asked.is_asked() => Err(error::failed(py, "stopped before its end")),
            _ => Ok(()),
        });
        if let Err(error) = done {
            stop.ask();
            raised.get_or_insert(error);
        }
        let late = calls::end(py, &stop, raised.as_ref().map(|_| Why::Stopped));
        if raised.is_none() && late.is_none() {
            continue;
        }
        if left.get_or_insert_with(Instant::now).elapsed() > GRACE {
            stop.ask();
            let of_call = || late.map(|(place, _)| error::too_long(py, &place));
            if let Some(error) = raised.or_else(of_call) {
                return Err(error);
            }
            (raised, left) = (None, None);
        }
    }
    // Callbacks may still need the interpreter, so it is released while the thread ends.
    let ended = py.detach(|| worker.join());
    match (raised, ended) {
        (Some(error), _) => Err(error),
        (None, Ok(result)) => Ok(result),
        (None, Err(panic)) => Err(of_panic(py, panic)),
    }
}

/// Does short `work` on this thread with the interpreter released. An exception in a callback of `work` is
/// the result, and a panic becomes an exception.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let ended = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    take_raised();
    ended.map_err(|panic| of_panic(py, panic))
}

/// Receives a message. The exclusive reference ensures that a single thread uses the receiver.
fn next<M>(heard: &mut Receiver<M>) -> Result<M, RecvTimeoutError> {
    heard.recv_timeout(LOOK)
}

fn of_panic(py: Python<'_>, panic: Box<dyn Any + Send>) -> PyErr {
    let panic = match panic.downcast::<Raised>() {
        Ok(raised) => return raised.0,
        Err(panic) => panic,
    };
    let text = text::of_panic(&*panic).unwrap_or_default();
    error::failed(py, &format!("a fault of forebay ended the run: {text}"))
}
