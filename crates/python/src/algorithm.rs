//! Congestion control in Python: each connection has an instance of a class, called from the thread that
//! simulates it.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::cc::foreign::{Described, Setting, Told, Values};
use forebay_core::cc::{self, CongestionControl, CongestionEvent, SendLimits, State};
use forebay_core::spec::Value;
use forebay_core::units::{ByteCount, Rate, Timestamp};
use forebay_policy::algorithms::{self, Own};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::{self, About, Place, Why};
use crate::error;
use crate::plain::plain;
use crate::watch::{doom, raise, raise_if_doomed};

plain! {
    /// The start of a connection.
    ///
    /// Args:
    ///     now_ns: Time in ns.
    ///     mss_bytes: Bytes of a segment.
    ///     initial_cwnd_bytes: The first window, in bytes.
    ///     seed: Seed of all that is random.
    #[derive(PartialEq)]
    Start: [] {
        now_ns: u64 = 0,
        mss_bytes: u64 = 1448,
        initial_cwnd_bytes: u64 = 14480,
        seed: u64 = 0,
    }
}

plain! {
    /// The path since the previous measurement; `None` is not known here.
    ///
    /// The simulator, a sendbox or an agent makes them. Tests of a class make them with field names:
    /// `Measurement(acked_bytes=1448)`.
    #[derive(PartialEq)]
    Measurement: [] {
        interval_ns: u64 = 0,
        acked_bytes: u64 = 0,
        lost_bytes: Option<u64> = None,
        ecn_ce_bytes: Option<u64> = None,
        ect1_bytes: Option<u64> = None,
        rtt_latest_ns: Option<u64> = None,
        rtt_min_ns: Option<u64> = None,
        feedback_delay_ns: Option<u64> = None,
        one_way_ns: Option<u64> = None,
        send_rate_bits_per_s: Option<u64> = None,
        delivery_rate_bits_per_s: Option<u64> = None,
        train_rate_bits_per_s: Option<u64> = None,
        in_flight_bytes: Option<u64> = None,
        delivered_bytes: u64 = 0,
        prior_delivered_bytes: u64 = 0,
        lost_prior_delivered_bytes: Option<u64> = None,
        backlog_bytes: Option<u64> = None,
        idle_share: Option<f64> = None,
        app_limited: bool = false,
        cwnd_limited: Option<bool> = None,
    }
}

impl From<Told> for Measurement {
    fn from(told: Told) -> Self {
        Self {
            interval_ns: told.interval_ns,
            acked_bytes: told.acked_bytes,
            lost_bytes: told.lost_bytes,
            ecn_ce_bytes: told.ecn_ce_bytes,
            ect1_bytes: told.ect1_bytes,
            rtt_latest_ns: told.rtt_latest_ns,
            rtt_min_ns: told.rtt_min_ns,
            feedback_delay_ns: told.feedback_delay_ns,
            one_way_ns: told.one_way_ns,
            send_rate_bits_per_s: told.send_rate_bits_per_s,
            delivery_rate_bits_per_s: told.delivery_rate_bits_per_s,
            train_rate_bits_per_s: told.train_rate_bits_per_s,
            in_flight_bytes: told.in_flight_bytes,
            delivered_bytes: told.delivered_bytes,
            prior_delivered_bytes: told.prior_delivered_bytes,
            lost_prior_delivered_bytes: told.lost_prior_delivered_bytes,
            backlog_bytes: told.backlog_bytes,
            idle_share: told.idle_share,
            app_limited: told.app_limited,
            cwnd_limited: told.cwnd_limited,
        }
    }
}

/// Limits of an algorithm for its host; None leaves a limit to the host.
///
/// Windows are kept between a segment and 4 GiB, rates at 8 kbit/s or more.
///
/// Args:
///     cwnd_bytes: Bytes that may be outstanding.
///     ssthresh_bytes: Slow-start threshold in bytes, towards which a host repairs losses (RFC 9937).
///     pacing_rate_bits_per_s: Pacing rate in bit/s; of window and rate the lower binds.
#[pyclass(frozen, get_all, eq, module = "forebay")]
#[derive(PartialEq)]
pub struct Limits {
    cwnd_bytes: Option<f64>,
    ssthresh_bytes: Option<f64>,
    pacing_rate_bits_per_s: Option<f64>,
}

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (cwnd_bytes=None, ssthresh_bytes=None, pacing_rate_bits_per_s=None))]
    const fn new(
        cwnd_bytes: Option<f64>,
        ssthresh_bytes: Option<f64>,
        pacing_rate_bits_per_s: Option<f64>,
    ) -> Self {
        Self { cwnd_bytes, ssthresh_bytes, pacing_rate_bits_per_s }
    }

    /// Arguments for pickles and copies.
    const fn __getnewargs__(&self) -> (Option<f64>, Option<f64>, Option<f64>) {
        (self.cwnd_bytes, self.ssthresh_bytes, self.pacing_rate_bits_per_s)
    }

    fn __repr__(&self) -> String {
        let number = |it: Option<f64>| it.map_or_else(|| "None".to_owned(), |it| format!("{it:?}"));
        format!(
            "Limits(cwnd_bytes={}, ssthresh_bytes={}, pacing_rate_bits_per_s={})",
            number(self.cwnd_bytes),
            number(self.ssthresh_bytes),
            number(self.pacing_rate_bits_per_s)
        )
    }
}

/// Description of a class, from the values of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Entry {
    /// Name in plans.
    name: String,
    /// One line.
    summary: String,
    /// Names of the measurement fields that the algorithm requires.
    needs: Vec<String>,
    /// How often the algorithm receives measurements.
    every: String,
    /// Longest time of a callback in seconds; 0: unlimited.
    limit_s: f64,
    /// Parameters of the algorithm.
    params: Vec<Parameter>,
    /// File, or cell of a notebook, with the class.
    file: String,
    /// Digest of all code that affects decisions.
    sources: String,
}

/// A parameter, the values of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Parameter {
    name: String,
    summary: String,
    default: Given,
    low: Option<f64>,
    high: Option<f64>,
}

/// Value of a parameter. Booleans are tried first because they are also whole numbers.
#[derive(FromPyObject)]
enum Given {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

impl From<Parameter> for Setting {
    fn from(Parameter { name, summary, default, low, high }: Parameter) -> Self {
        let default = match default {
            Given::Bool(it) => Value::Bool(it),
            Given::Integer(it) => Value::Integer(it),
            Given::Float(it) => Value::Float(it),
            Given::Text(it) => Value::Text(it),
        };
        Self { name, summary, default, low, high }
    }
}

/// Registers the algorithm whose instances `class_` makes. It replaces an earlier one of the same name. Entry
/// and class live as long as the process.
#[pyfunction]
pub fn register(py: Python<'_>, entry: Entry, class_: Py<PyAny>) -> PyResult<()> {
    let Entry { name, summary, needs, every, limit_s, params, file, sources } = entry;
    let wrong = |reason: &str| error::input(py, &format!("algorithm {name:?}: {reason}"));
    let limit = Duration::try_from_secs_f64(limit_s).map_err(|_| {
        wrong(&format!("limit_s = {limit_s}: allowed is a time in seconds, or 0 for none"))
    })?;
    let params = params.into_iter().map(Setting::from).collect();
    let described = Described { name: name.clone(), summary, needs, every, params };
    let class = class_.getattr(py, "__qualname__")?.extract(py)?;
    let limit = (!limit.is_zero()).then_some(limit);
    let about = Arc::new(About { name: name.clone(), class, limit });
    calls::watch();
    let make = move |values: Values| -> Box<dyn CongestionControl> {
        let class = Python::attach(|py| class_.clone_ref(py));
        let (about, owner) = (about.clone(), "flow".into());
        let limits = SendLimits::default();
        Box::new(InPython { about, class, values, owner, seed: 0, instance: None, limits })
    };
    let own = |algorithm| Own { algorithm, folder: file.leak(), sources: sources.leak() };
    let added = described.algorithm(make).and_then(|algorithm| algorithms::add(&[own(algorithm)]));
    added.map_err(|error| wrong(&error.to_string()))
}

/// An algorithm for one connection.
struct InPython {
    about: Arc<About>,
    class: Py<PyAny>,
    /// Parameters of the algorithm.
    values: Values,
    /// The flow or bundle that it controls.
    owner: Arc<str>,
    seed: u64,
    /// Made when the connection starts, so that instances do not share state.
    instance: Option<Py<PyAny>>,
    limits: SendLimits,
}

impl InPython {
    fn place(&self, callback: &'static str, now: Timestamp) -> Place {
        Place { about: self.about.clone(), callback, owner: self.owner.clone(), now }
    }

    /// Calls the instance, and takes over the limits in its answer, if any. An exception ends the run.
    fn ask(
        &mut self,
        (callback, now): (&'static str, Timestamp),
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) {
        let place = self.place(callback, now);
        let Some(instance) = &self.instance else { return };
        let answered = Python::attach(|py| {
            called(py, &place, || {
                let answer = call(instance.bind(py))?;
                if answer.is_none() { Ok(None) } else { limits(&answer, &place).map(Some) }
            })
        });
        if let Some(limits) = ended(answered, &place) {
            self.limits = limits;
        }
    }
}

/// Makes a call, and drops its answer if it had to end.
fn called<T>(py: Python<'_>, place: &Place, call: impl FnOnce() -> PyResult<T>) -> Answer<T> {
    raise_if_doomed();
    match calls::called(py, place.clone(), call) {
        (answer, None) => Ok(answer),
        (_, Some(why)) => Err(why),
    }
}

/// Result of a callback, or why it had to end.
type Answer<T> = Result<PyResult<T>, Why>;

/// The answer of a callback. An exception ends the run, with a note on its place.
fn ended<T>(answer: Answer<T>, place: &Place) -> T {
    match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            Python::attach(|py| {
                let is_told = error.value(py).to_string().contains(&place.to_string());
                if !is_told {
                    // If the exception refuses a note, it is raised without one.
                    let _ = error.value(py).call_method1("add_note", (place.to_string(),));
                }
            });
            raise(error)
        }
        Err(Why::TooLong) => doom(Python::attach(|py| error::too_long(py, place))),
        Err(Why::Stopped) => doom(Python::attach(|py| error::failed(py, "stopped before its end"))),
    }
}

/// Parameters as keyword arguments.
fn arguments<'py>(py: Python<'py>, values: &Values) -> PyResult<Bound<'py, PyDict>> {
    let arguments = PyDict::new(py);
    for (name, value) in values {
        match value {
            Value::Bool(it) => arguments.set_item(name, it)?,
            Value::Integer(it) => arguments.set_item(name, it)?,
            Value::Float(it) => arguments.set_item(name, it)?,
            Value::Text(it) => arguments.set_item(name, it)?,
            // Parameters have no other kinds.
            _ => {}
        }
    }
    Ok(arguments)
}

fn limits(answer: &Bound<'_, PyAny>, place: &Place) -> PyResult<SendLimits> {
    let py = answer.py();
    let wrong = |what: &str| error::input(py, &format!("{place}: answered {answer}: {what}"));
    let answer = answer
        .cast::<Limits>()
        .map_err(|_| wrong("allowed is forebay.Limits, or None to keep the current limits"))?
        .get();
    // NaN would become 0.
    let whole = |number: Option<f64>| match number {
        Some(number) if number.is_nan() || number < 0.0 => {
            Err(wrong("allowed are limits of 0 or more"))
        }
        number => Ok(number.map(|number| number as u64)),
    };
    Ok(SendLimits {
        cwnd: whole(answer.cwnd_bytes)?.map(ByteCount::new),
        ssthresh: whole(answer.ssthresh_bytes)?.map(ByteCount::new),
        pacing_rate: whole(answer.pacing_rate_bits_per_s)?.map(Rate::from_bits_per_sec),
        app_limited: None,
    })
}

impl CongestionControl for InPython {
    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    fn set_owner(&mut self, owner: &str) {
        self.owner = owner.into();
    }

    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        let start = Start {
            now_ns: now.as_nanos(),
            mss_bytes: mss.as_u64(),
            initial_cwnd_bytes: initial_cwnd.as_u64(),
            seed: self.seed,
        };
        self.limits = SendLimits { cwnd: Some(initial_cwnd), ..SendLimits::default() };
        let place = self.place("__init__", now);
        let made = Python::attach(|py| {
            let made = || self.class.call(py, (), Some(&arguments(py, &self.values)?));
            called(py, &place, made)
        });
        self.instance = Some(ended(made, &place));
        self.ask(("init", now), |it| it.call_method1(intern!(it.py(), "init"), (start,)));
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &cc::Measurement) {
        let arguments = (now.as_nanos(), Measurement::from(Told::from(measurement)));
        self.ask(("on_measurement", now), |it| {
            it.call_method1(intern!(it.py(), "on_measurement"), arguments)
        });
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        let (name, value) = event.named();
        let arguments = (now.as_nanos(), name, value);
        self.ask(("on_event", now), |it| it.call_method1(intern!(it.py(), "on_event"), arguments));
    }

    fn send_limits(&self) -> SendLimits {
        self.limits
    }

    fn state(&self) -> State {
        State { phase: "running", ..State::default() }
    }
}
