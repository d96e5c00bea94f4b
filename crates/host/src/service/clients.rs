//! Clients of a socket, one request and one answer each. Nothing here waits for a client: each does in a turn what it
//! can, and loses its connection when its time is over or another client has a better claim to the place.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use socket2::SockRef;

/// Longest turn: what else its thread has to do comes in between.
pub const TURN: Duration = Duration::from_millis(100);
/// Longest request (bytes).
pub const REQUEST_MAX: usize = 8 << 10;
/// Bytes of a request read at a time.
const PART: usize = 1 << 10;
/// How long nobody is let in after the kernel refused a connection, as where too many files are open.
const PAUSE: Duration = Duration::from_secs(1);

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of all. Whoever has the most of them makes room for another one.
    pub all: usize,
    /// Connections of one user or address. A further one takes the place of its oldest.
    pub each: usize,
    /// Time for a request, and as long again for reading the answer.
    pub patience: Duration,
}

/// A client as far as its claim to a place goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest<K> {
    /// The user or address.
    pub of: K,
    /// Whether it is served before the others, and makes room for none of them.
    pub goes_first: bool,
}

/// What a client gets for the bytes that it has sent.
pub enum Reply {
    /// Nothing yet: the request is not whole.
    NotYet,
    /// An answer that is not there yet, with this number.
    Later(u64),
    /// This head and body.
    Now(Vec<u8>, Arc<[u8]>),
}

/// How far a client is.
#[derive(Debug)]
enum Stage {
    Asking(Vec<u8>),
    /// For the answer with this number.
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
    limits: Limits,
    /// Tells the log of a client that gets no answer.
    failed: fn(&io::Error),
    /// Clients that go first, and then the others, of each kind the oldest first.
    clients: Vec<Client<S, K>>,
    closed_until: Option<Instant>,
}

impl<S: AsFd + Read + Write, K: Copy + Ord> Clients<S, K> {
    /// No clients.
    pub const fn new(limits: Limits, failed: fn(&io::Error)) -> Self {
        Self { limits, failed, clients: Vec::new(), closed_until: None }
    }

    /// Lets in those who knock at a socket that does not block, as many as there may be at once.
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
                // Of that client alone: it has gone, or a signal came.
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

    /// The place of the client who makes room for another one, if somebody must.
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
        // Of equals the oldest.
        let most = others.rev().map(|it| it.guest.of).max_by_key(|key| counts[key]);
        // Those who go first are fewer than all.
        most.and_then(oldest_of)
    }

    /// What to wait for besides the socket itself.
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

    /// Whether new clients are let in: else the socket is not to be waited for.
    pub const fn is_open(&self) -> bool {
        self.closed_until.is_none()
    }

    /// When the next client loses its patience with us, or new ones are let in again.
    pub fn next_timer(&self) -> Option<Instant> {
        self.clients.iter().map(|client| client.until).chain(self.closed_until).min()
    }

    /// The greatest number of an answer that clients wait for.
    pub fn awaited(&self) -> Option<u64> {
        let numbers = self.clients.iter().filter_map(|client| match client.stage {
            Stage::Waiting(number) => Some(number),
            _ => None,
        });
        numbers.max()
    }

    /// Has those who wait for the answer `number`, or one before, have this.
    pub fn tell(&mut self, number: u64, text: &Arc<[u8]>) {
        self.tell_those(text, |waits_for, _| waits_for <= number);
    }

    /// Has those who have waited too long have this.
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

    /// Has each client go on as far as it can without waiting, for a [`TURN`] at most. `answer` is asked what a client
    /// gets for the bytes that it has sent, and whether no more come.
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

/// Whether the kernel could not let in one client alone (accept(2)).
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted};
    [ConnectionAborted, Interrupted].contains(&error.kind())
}

impl<S: Read + Write, K> Client<S, K> {
    /// False: the client has its answer.
    fn go_on(
        &mut self,
        patience: Duration,
        answer: &mut impl FnMut(&Guest<K>, &[u8], bool) -> Reply,
    ) -> io::Result<bool> {
        let goes_on = match &mut self.stage {
            // Its time is for those who answer.
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

/// How long poll(2) may wait for what is due then: not less, as its milliseconds are cut off.
pub fn timeout(due: Option<Instant>) -> PollTimeout {
    let Some(due) = due else { return PollTimeout::NONE };
    let left = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// Whether a write may go on in a later turn.
fn is_for_later(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const LIMITS: Limits = Limits { all: 4, each: 2, patience: Duration::from_millis(50) };

    /// Has clients of these users, in this order, knock; answers whose connections are left, in the order in which
    /// they are served.
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
        let limits = Limits { patience: Duration::from_secs(20), ..LIMITS };
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
