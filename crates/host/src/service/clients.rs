//! Clients of a socket, with one request and one answer each. No code here blocks on a client. In each turn a client
//! goes on as far as it can without waiting. It loses its connection when its time is over, or when another client has
//! a better claim to the place.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use socket2::SockRef;

/// Longest turn, so that the thread can do its other work in between.
pub const TURN: Duration = Duration::from_millis(100);
/// Longest request (bytes).
pub const REQUEST_MAX: usize = 8 << 10;
/// Bytes of a request read at a time.
const PART: usize = 1 << 10;
/// Time without new clients after the kernel refused a connection, for example because too many files are open.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits on the clients of a socket.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Most connections of all clients. If a further one comes, the client with the most connections loses its oldest.
    pub all: usize,
    /// Most connections of one user or address. A further one replaces the oldest.
    pub each: usize,
    /// Time for sending a request, and again for reading the answer.
    pub patience: Duration,
}

/// The identity of a client, for limits and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest<K> {
    /// User or address of the client.
    pub of: K,
    /// The client is served before ordinary clients, and never makes room for one.
    pub goes_first: bool,
}

/// The reaction to the bytes that a client has sent.
pub enum Reply {
    /// The request is not complete yet.
    NotYet,
    /// The answer will come later, with this number.
    Later(u64),
    /// The answer: head and body.
    Now(Vec<u8>, Arc<[u8]>),
}

/// Progress of a client.
#[derive(Debug)]
enum Stage {
    Asking(Vec<u8>),
    /// Waits for the answer with this number.
    Waiting(u64),
    Reading {
        head: Vec<u8>,
        body: Arc<[u8]>,
        sent: usize,
    },
}

#[derive(Debug)]
struct Client<S, K> {
    stream: S,
    guest: Guest<K>,
    stage: Stage,
    until: Instant,
}

/// All clients of a socket.
#[derive(Debug)]
pub struct Clients<S, K> {
    limits: ClientLimits,
    /// Logs the error of a client that gets no answer.
    failed: fn(&io::Error),
    /// Clients with priority, then the ordinary ones; the oldest first within each kind.
    clients: Vec<Client<S, K>>,
    closed_until: Option<Instant>,
}

impl<S: AsFd + Read + Write, K: Copy + Ord> Clients<S, K> {
    /// Starts without clients.
    pub const fn new(limits: ClientLimits, failed: fn(&io::Error)) -> Self {
        Self { limits, failed, clients: Vec::new(), closed_until: None }
    }

    /// Accepts clients from a non-blocking socket, at most [`ClientLimits::all`] per call.
    pub fn let_in(&mut self, mut accept: impl FnMut() -> io::Result<(S, Guest<K>)>) {
        let now = Instant::now();
        self.closed_until = self.closed_until.filter(|until| *until > now);
        for _ in 0..self.limits.all {
            if self.closed_until.is_some() {
                return;
            }
            match accept() {
                Ok((stream, guest)) => match SockRef::from(&stream).set_nonblocking(true) {
                    Ok(()) => self.seat(stream, guest, now),
                    Err(error) => (self.failed)(&error),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The error concerns that client alone: it is gone, or a signal came.
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    (self.failed)(&error);
                    self.closed_until = Some(now + PAUSE);
                }
            }
        }
    }

    fn seat(&mut self, stream: S, guest: Guest<K>, now: Instant) {
        if let Some(place) = self.place_to_clear(&guest) {
            self.clients.remove(place);
        }
        let last = self.clients.iter().rposition(|it| it.guest.goes_first >= guest.goes_first);
        let until = now + self.limits.patience;
        let client = Client { stream, guest, stage: Stage::Asking(Vec::new()), until };
        self.clients.insert(last.map_or(0, |place| place + 1), client);
    }

    /// Index of the client that must make room for `guest`, if any.
    fn place_to_clear(&self, guest: &Guest<K>) -> Option<usize> {
        let oldest_of = |key| self.clients.iter().position(|it| it.guest.of == key);
        let mut counts = BTreeMap::<K, usize>::new();
        for client in &self.clients {
            *counts.entry(client.guest.of).or_default() += 1;
        }
        if counts.get(&guest.of).is_some_and(|count| *count >= self.limits.each) {
            return oldest_of(guest.of);
        }
        if self.clients.len() < self.limits.all {
            return None;
        }
        let others = self.clients.iter().filter(|it| !it.guest.goes_first);
        // Of equals, the oldest one.
        let most = others.rev().map(|it| it.guest.of).max_by_key(|key| counts[key]);
        // There are always fewer clients with priority than places.
        most.and_then(oldest_of)
    }

    /// Descriptors to poll besides the socket itself.
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.clients.iter().filter_map(|client| {
            let flags = match client.stage {
                Stage::Asking(_) => PollFlags::POLLIN,
                Stage::Reading { .. } => PollFlags::POLLOUT,
                Stage::Waiting(_) => return None,
            };
            Some(PollFd::new(client.stream.as_fd(), flags))
        })
    }

    /// Whether new clients are accepted; otherwise the socket must not be polled.
    pub const fn is_open(&self) -> bool {
        self.closed_until.is_none()
    }

    /// Time at which the next client times out, or new ones are accepted again.
    pub fn next_timer(&self) -> Option<Instant> {
        self.clients.iter().map(|client| client.until).chain(self.closed_until).min()
    }

    /// The greatest number of an answer that a client waits for.
    pub fn awaited(&self) -> Option<u64> {
        let numbers = self.clients.iter().filter_map(|client| match client.stage {
            Stage::Waiting(number) => Some(number),
            _ => None,
        });
        numbers.max()
    }

    /// Sends `text` to the clients that wait for the answer `number` or an earlier one.
    pub fn tell(&mut self, number: u64, text: &Arc<[u8]>) {
        self.tell_those(text, |waits_for, _| waits_for <= number);
    }

    /// Sends `text` to the clients that have waited for too long.
    pub fn tell_late(&mut self, text: &Arc<[u8]>) {
        let now = Instant::now();
        self.tell_those(text, |_, until| until <= now);
    }

    fn tell_those(&mut self, text: &Arc<[u8]>, is_one: impl Fn(u64, Instant) -> bool) {
        let until = Instant::now() + self.limits.patience;
        for client in &mut self.clients {
            if let Stage::Waiting(number) = client.stage
                && is_one(number, client.until)
            {
                client.stage = Stage::Reading { head: Vec::new(), body: text.clone(), sent: 0 };
                client.until = until;
            }
        }
    }

    /// Serves each client as far as possible without waiting, for at most a [`TURN`]. `answer` gets the client, its
    /// bytes so far, and whether no more bytes follow.
    pub fn serve(&mut self, mut answer: impl FnMut(&Guest<K>, &[u8], bool) -> Reply) {
        let began = Instant::now();
        let patience = self.limits.patience;
        let mut place = 0;
        while place < self.clients.len() && began.elapsed() < TURN {
            match self.clients[place].go_on(patience, &mut answer) {
                Ok(true) => place += 1,
                Ok(false) => drop(self.clients.remove(place)),
                Err(error) => {
                    (self.failed)(&error);
                    self.clients.remove(place);
                }
            }
        }
    }
}

/// Whether accept(2) failed because of one client alone.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted};
    [ConnectionAborted, Interrupted].contains(&error.kind())
}

impl<S: Read + Write, K> Client<S, K> {
    /// Goes on with the request or the answer. False: the client has its answer.
    fn go_on(
        &mut self,
        patience: Duration,
        answer: &mut impl FnMut(&Guest<K>, &[u8], bool) -> Reply,
    ) -> io::Result<bool> {
        let goes_on = match &mut self.stage {
            // [`Clients::tell_late`] handles its timeout.
            Stage::Waiting(_) => return Ok(true),
            Stage::Asking(_) => self.listen(patience, answer)?,
            Stage::Reading { .. } => self.speak()?,
        };
        if goes_on && Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(goes_on)
    }

    fn listen(
        &mut self,
        patience: Duration,
        answer: &mut impl FnMut(&Guest<K>, &[u8], bool) -> Reply,
    ) -> io::Result<bool> {
        let Stage::Asking(request) = &mut self.stage else { return Ok(true) };
        let mut part = [0; PART];
        loop {
            let count = match self.stream.read(&mut part) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            };
            request.extend_from_slice(&part[..count]);
            let is_all = count == 0 || request.len() > REQUEST_MAX;
            self.stage = match answer(&self.guest, request, is_all) {
                Reply::NotYet if is_all => return Err(io::ErrorKind::UnexpectedEof.into()),
                Reply::NotYet => continue,
                Reply::Later(number) => Stage::Waiting(number),
                Reply::Now(head, body) => Stage::Reading { head, body, sent: 0 },
            };
            self.until = Instant::now() + patience;
            return Ok(true);
        }
    }

    fn speak(&mut self) -> io::Result<bool> {
        let Stage::Reading { head, body, sent } = &mut self.stage else { return Ok(true) };
        let left = match sent.checked_sub(head.len()) {
            Some(of_body) => &body[of_body..],
            None => &head[*sent..],
        };
        match self.stream.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *sent += count,
            Err(error) if is_for_later(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(*sent < head.len() + body.len())
    }
}

/// Timeout for a poll(2) until `due`, rounded up to milliseconds.
pub fn timeout(due: Option<Instant>) -> PollTimeout {
    let Some(due) = due else { return PollTimeout::NONE };
    let left = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// Whether a write may continue in a later turn.
fn is_for_later(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const LIMITS: ClientLimits =
        ClientLimits { all: 4, each: 2, patience: Duration::from_millis(50) };

    /// Connects clients of these users in this order. Returns the users whose connections are left, in the order of
    /// service.
    fn left(users: &[u32]) -> Vec<u32> {
        let mut clients = Clients::new(LIMITS, |_| {});
        let mut others = Vec::new();
        for user in users {
            let (own, other) = UnixStream::pair().unwrap();
            let mut own = Some(own);
            others.push(other);
            let guest = Guest { of: *user, goes_first: *user == 0 };
            clients.let_in(|| Ok((own.take().ok_or(io::ErrorKind::WouldBlock)?, guest)));
        }
        clients.clients.iter().map(|client| client.guest.of).collect()
    }

    #[test]
    fn whoever_has_most_makes_room() {
        assert_eq!(left(&[7, 7, 7, 8]), [7, 7, 8]);
        assert_eq!(left(&[1, 2, 0, 3, 0]), [0, 0, 2, 3]);
        assert_eq!(left(&[1, 2, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(left(&[0, 0, 0, 1, 2, 3]), [0, 0, 2, 3]);
    }

    #[test]
    fn answers_of_any_length_are_read_in_turns() {
        let limits = ClientLimits { patience: Duration::from_secs(20), ..LIMITS };
        let mut clients = Clients::<UnixStream, u32>::new(limits, |_| {});
        let (own, mut other) = UnixStream::pair().unwrap();
        let mut own = Some(own);
        let guest = Guest { of: 1, goes_first: false };
        clients.let_in(|| Ok((own.take().ok_or(io::ErrorKind::WouldBlock)?, guest)));
        other.write_all(b"ask").unwrap();
        let body: Arc<[u8]> = vec![7; 1 << 20].into();
        let reader = std::thread::spawn(move || {
            let mut answer = Vec::new();
            other.read_to_end(&mut answer).map(|_| answer)
        });
        while clients.fds().count() > 0 {
            clients.serve(|_, request, _| match request {
                b"ask" => Reply::Now(b"head".to_vec(), body.clone()),
                _ => Reply::NotYet,
            });
        }
        let answer = reader.join().unwrap().unwrap();
        assert!(answer.starts_with(b"head") && answer.len() == 4 + body.len());
    }

    #[test]
    fn a_silent_client_is_given_up() {
        let mut clients = Clients::<UnixStream, u32>::new(LIMITS, |_| {});
        let (own, mut other) = UnixStream::pair().unwrap();
        let mut own = Some(own);
        let guest = Guest { of: 1, goes_first: false };
        clients.let_in(|| Ok((own.take().ok_or(io::ErrorKind::WouldBlock)?, guest)));
        clients.serve(|_, _, _| Reply::NotYet);
        assert_eq!(clients.fds().count(), 1);
        std::thread::sleep(LIMITS.patience);
        clients.serve(|_, _, _| Reply::NotYet);
        assert_eq!(clients.fds().count(), 0);
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    }
}
