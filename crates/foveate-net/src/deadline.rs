//! One moment by which a request has to be over, whatever it is doing then.
//!
//! The HTTP library's own total timeout cannot be held while the caller waits for room, and it is not asked while
//! encryption reads a record byte by byte. So the deadline is kept at the socket: every read and write there gets what
//! is left. A request begins and ends on one thread, which is how a socket finds the deadline of the request that
//! uses it now.

use std::cell::Cell;
use std::marker::PhantomData;
use std::{io, time};

use ureq::Timeout;
use ureq::unversioned::transport::time::Duration;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport};

thread_local! {
    static DEADLINE: Cell<Option<time::Instant>> = const { Cell::new(None) };
}

/// The deadline of what this thread does, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Deadline {
    outer: Option<time::Instant>,
    /// It belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

impl Deadline {
    /// From now on; never later than the deadline that it takes the place of.
    pub(crate) fn within(timeout: time::Duration) -> Self {
        let until = time::Instant::now() + timeout.min(left());
        Self { outer: DEADLINE.replace(Some(until)), _not_send: PhantomData }
    }

    /// Does `work` without counting its time.
    pub(crate) fn pause<T>(&self, work: impl FnOnce() -> T) -> T {
        let (left, before) = (DEADLINE.take(), time::Instant::now());
        let result = work();
        DEADLINE.set(left.map(|at| at + before.elapsed()));
        result
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        DEADLINE.set(self.outer);
    }
}

/// What is left to this thread's request; forever where there is none.
pub(crate) fn left() -> time::Duration {
    DEADLINE.get().map_or(time::Duration::MAX, |at| at.saturating_duration_since(time::Instant::now()))
}

/// The timeout, or what is left where that is less.
fn capped(timeout: NextTimeout) -> NextTimeout {
    let left = left();
    match left < *timeout.after {
        true => NextTimeout { after: Duration::Exact(left), reason: Timeout::Global, ..timeout },
        false => timeout,
    }
}

/// Opens TCP connections that keep the deadline.
#[derive(Debug, Default)]
pub(crate) struct TimelyConnector(TcpConnector);

impl Connector for TimelyConnector {
    type Out = Timely<<TcpConnector as Connector>::Out>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<()>) -> Result<Option<Self::Out>, ureq::Error> {
        let details = ConnectionDetails {
            timeout: capped(details.timeout),
            addrs: details.addrs.clone(),
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
            ..*details
        };
        Ok(self.0.connect(&details, chained)?.map(Timely))
    }
}

/// A connection that keeps the deadline.
#[derive(Debug)]
pub(crate) struct Timely<T>(T);

impl<T: Transport> Transport for Timely<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.0.transmit_output(amount, capped(timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        // The library takes a reset for the end of a body of unknown length: then half of a body would pass for all.
        self.0.await_input(capped(timeout)).map_err(|error| match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                ureq::Error::Io(io::Error::other(error))
            }
            error => error,
        })
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }
}
