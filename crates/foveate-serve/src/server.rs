//! Accepts connections, limits them, and ends them.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use foveate_worker::Probe;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

use crate::api::Api;
use crate::error::ServeError;
use crate::index::IndexSlot;
use crate::request_log::PeerAddress;
use crate::routes::{self, ServerState};

/// A connection reads on while its request's head is incomplete and its buffer has fewer bytes than this. One read may
/// bring as many again, so a connection has at most twice as many before its request is authenticated.
const MAX_BUFFER: usize = 32 << 10;
/// Connections that the system keeps until they are accepted. Of a burst of 500, tokio's usual 128 left some to
/// connect again a second later, which is a probe's whole time in Kubernetes.
const BACKLOG: u32 = 1024;
/// The pause after a failed accept, for example when no file descriptors are left.
const BREATH: Duration = Duration::from_millis(50);
/// Time in which an idle connection leaves its place. One that takes longer still has an answer to deliver.
const LEAVING: Duration = Duration::from_millis(50);

/// The services of a server, and its limits on connections.
pub struct ServerOptions {
    /// The address to listen at; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Answers for health and metrics.
    pub probe: Arc<dyn Probe>,
    /// The runtime that the server works on, with several threads: that of the engine, for example. It outlives the
    /// server.
    pub runtime: Handle,
    /// The embeddings API, if it is served.
    pub api: Option<Api>,
    /// Most connections at once. A further one takes the place of the one that has been idle longest, or waits while
    /// requests are under way on all of them.
    pub max_connections: usize,
    /// Longest time of an idle connection, and for a request's head. A proxy in front must close its idle connections
    /// earlier; otherwise it sends requests into connections that just ended.
    pub keep_alive: Duration,
    /// Longest time in which a client reads nothing of its answer.
    pub write_timeout: Duration,
}

impl ServerOptions {
    /// Health and metrics only, with 1 024 connections, 75 seconds of an idle one, and 30 seconds without reading.
    pub fn new(listen: SocketAddr, probe: Arc<dyn Probe>, runtime: Handle) -> Self {
        let keep_alive = Duration::from_secs(75);
        let write_timeout = Duration::from_secs(30);
        Self { listen, probe, runtime, api: None, max_connections: 1024, keep_alive, write_timeout }
    }
}

impl std::fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptions").field("listen", &self.listen).field("api", &self.api).finish_non_exhaustive()
    }
}

/// A server on the runtime of its options. Dropping it stops it at once.
pub struct Server {
    address: SocketAddr,
    shared: Arc<ServerState>,
    runtime: Handle,
    running: Option<RunningServer>,
}

struct RunningServer {
    stop: oneshot::Sender<Duration>,
    accepting: JoinHandle<usize>,
}

impl Server {
    /// Starts to listen and returns.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(options: ServerOptions) -> Result<Self, ServeError> {
        let ServerOptions { listen, probe, runtime, api, max_connections, keep_alive, write_timeout } = options;
        if max_connections == 0 {
            return Err(ServeError::Options("a server has at least one connection".to_owned()));
        }
        let (router, shared) = routes::router(probe, api)?;
        let _context = runtime.enter();
        let bound = bind(listen).and_then(|bound| Ok((bound.local_addr()?, bound)));
        let (address, listener) = bound.map_err(|source| ServeError::Bind { address: listen, source })?;
        let (stop, stopped) = oneshot::channel();
        let door = Door { router, keep_alive, write_timeout, max_connections, guests: Vec::new() };
        let accepting = tokio::spawn(door.keep(listener, stopped));
        Ok(Self { address, shared, runtime: runtime.clone(), running: Some(RunningServer { stop, accepting }) })
    }

    /// The address that the server listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Announces the stop: `/readyz` fails, and each answer ends its connection. New connections are served on, until
    /// load balancers have noticed.
    pub fn announce_stop(&self) {
        self.shared.stopping.store(true, Relaxed);
    }

    /// Replaces [`Api::tokens`].
    ///
    /// # Errors
    /// [`ServeError::Options`] if there is no key, or one has another form. The old keys stay.
    pub fn set_tokens(&self, tokens: &[String]) -> Result<(), ServeError> {
        self.shared.serving.as_ref().map_or(Ok(()), |serving| serving.set_keys(tokens))
    }

    /// Reads the index again, as `POST /v1/index/reload` does, and returns at once. The log says what becomes of it.
    pub fn reload_index(&self) {
        let Some(serving) = self.shared.serving.clone() else { return };
        self.runtime.spawn_blocking(move || {
            if let Some(Err(problem)) = serving.index.as_ref().map(IndexSlot::reload) {
                tracing::error!("{}; {}", problem.detail, problem.remedy);
            }
        });
    }

    /// Accepts no more connections, and waits at most `deadline` for the current requests to be answered. Then cuts off
    /// the remaining connections and returns their number.
    pub fn stop(mut self, deadline: Duration) -> usize {
        self.end(deadline)
    }

    fn end(&mut self, deadline: Duration) -> usize {
        let Some(RunningServer { stop, accepting }) = self.running.take() else { return 0 };
        // The task listens until this message, so it cannot have ended before.
        let _ = stop.send(deadline);
        self.runtime.block_on(accepting).unwrap_or_default()
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A connection that has a place.
struct Guest {
    activity: Mutex<GuestActivity>,
    leave: Notify,
}

#[derive(Clone, Copy)]
enum GuestActivity {
    /// The head of its first request has not come.
    New(Instant),
    /// A request is under way.
    Busy,
    Idle(Instant),
}

impl Guest {
    fn activity(&self) -> MutexGuard<'_, GuestActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle_since(&self) -> Option<Instant> {
        match *self.activity() {
            GuestActivity::New(since) | GuestActivity::Idle(since) => Some(since),
            GuestActivity::Busy => None,
        }
    }
}

/// Accepts clients.
struct Door {
    router: Router,
    keep_alive: Duration,
    write_timeout: Duration,
    max_connections: usize,
    /// The connections that have not been asked to leave, and some that have ended.
    guests: Vec<Arc<Guest>>,
}

impl Door {
    /// Returns the number of connections that had to be cut off.
    async fn keep(mut self, listener: TcpListener, mut stopped: oneshot::Receiver<Duration>) -> usize {
        let mut connections = JoinSet::new();
        let deadline = loop {
            tokio::select! {
                deadline = &mut stopped => break deadline.unwrap_or_default(),
                () = self.admit(&listener, &mut connections) => {}
            }
        };
        drop(listener);
        self.guests.iter().for_each(|guest| guest.leave.notify_one());
        // Dropping the set cuts off those that are left.
        let _ = timeout(deadline, async { while connections.join_next().await.is_some() {} }).await;
        connections.len()
    }

    /// Accepts the next client, and serves it once there is a place.
    async fn admit(&mut self, listener: &TcpListener, connections: &mut JoinSet<()>) {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                return tokio::time::sleep(BREATH).await;
            }
        };
        while connections.try_join_next().is_some() {}
        self.guests.retain(|guest| Arc::strong_count(guest) > 1);
        while connections.len() >= self.max_connections {
            let idle = (0..self.guests.len()).filter(|place| self.guests[*place].idle_since().is_some());
            if let Some(longest) = idle.min_by_key(|place| self.guests[*place].idle_since()) {
                self.guests.swap_remove(longest).leave.notify_one();
            }
            // While none is idle, this looks again after a while.
            let _ = timeout(LEAVING, connections.join_next()).await;
        }
        let guest = Guest { activity: Mutex::new(GuestActivity::New(Instant::now())), leave: Notify::new() };
        let guest = Arc::new(guest);
        self.guests.push(Arc::clone(&guest));
        connections.spawn(self.serve(stream, peer, guest));
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, guest: Arc<Guest>) -> impl Future<Output = ()> + use<> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small answers may be late");
        }
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.write_timeout));
        let router = TowerToHyperService::new(self.router.clone());
        let asking = Arc::clone(&guest);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let guest = Arc::clone(&asking);
            *guest.activity() = GuestActivity::Busy;
            request.extensions_mut().insert(PeerAddress(peer));
            let answer = router.call(request);
            async move {
                let answer = answer.await;
                *guest.activity() = GuestActivity::Idle(Instant::now());
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.keep_alive)
            .max_buf_size(MAX_BUFFER)
            .serve_connection(TokioIo::new(Box::pin(stream)), service);
        async move {
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = guest.leave.notified() => {
                    let is_new = matches!(*guest.activity(), GuestActivity::New(_));
                    if is_new {
                        // hyper would wait for the rest of the head.
                        return;
                    }
                    // Closes now, or once the answer is delivered.
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            // Broken connections are ordinary, so they are logged at debug level only.
            if let Err(error) = ended {
                tracing::debug!(%error, "connection");
            }
        }
    }
}
