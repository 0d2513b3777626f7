//! A deadline for a whole request, in each of its phases.
//!
//! The HTTP library's own total timeout cannot pause while the caller waits for room, and does not apply while TLS
//! reads a record byte by byte. So sockets keep the deadline: every read and write gets the time that is left. A
//! request begins and ends on one thread, so a socket finds its request's deadline in a thread-local.

use std::cell::Cell;
use std::marker::PhantomData;
use std::{io, time};

use ureq::Timeout;
use ureq::unversioned::transport::time::Duration;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport};

thread_local! {
    static DEADLINE: Cell<Option<time::Instant>> = const { Cell::new(None) };
}

/// The deadline of this thread's work while this value lives.
#[derive(Debug)]
pub(crate) struct Deadline {
    outer: Option<time::Instant>,
    /// Not `Send`: a deadline belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

impl Deadline {
    /// Starts a deadline, no later than the one that it replaces.
    pub(crate) fn within(timeout: time::Duration) -> Self {
        let until = time::Instant::now() + timeout.min(left());
        Self { outer: DEADLINE.replace(Some(until)), _not_send: PhantomData }
    }

    /// Runs `work` without counting its time.
    pub(crate) fn pause<T>(&self, work: impl FnOnce() -> T) -> T {
        let left = DEADLINE.take();
        let before = time::Instant::now();
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

/// The time that is left to this thread's request; unlimited without a deadline.
pub(crate) fn left() -> time::Duration {
    DEADLINE.get().map_or(time::Duration::MAX, |at| at.saturating_duration_since(time::Instant::now()))
}

/// The shorter of the timeout and the time that is left.
fn capped(timeout: NextTimeout) -> NextTimeout {
    let left = left();
    if left < *timeout.after {
        NextTimeout { after: Duration::Exact(left), reason: Timeout::Global, ..timeout }
    } else {
        timeout
    }
}

/// Opens TCP connections that keep the deadline.
#[derive(Debug, Default)]
pub(crate) struct TimelyConnector(TcpConnector);

impl<In: Transport> Connector<In> for TimelyConnector {
    type Out = Timely<<TcpConnector as Connector<In>>::Out>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
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
        // The library takes a reset for the end of a body of unknown length, so a truncated body would pass as
        // complete.
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
