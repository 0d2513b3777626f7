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
use tokio::runtime::Runtime;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

use crate::api::Api;
use crate::error::ServeError;
use crate::index::IndexSlot;
use crate::limits::MAX_BLOCKING;
use crate::request_log::PeerAddress;
use crate::routes::{self, ServerState};

/// Threads for connections, which do little work themselves.
const THREADS: usize = 2;
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
    /// The embeddings API, if it is served.
    pub api: Option<Api>,
    /// Most connections at once. A further one takes the place of the one that has been idle longest, or waits while
    /// requests are under way on all of them.
    pub max_connections: u32,
    /// Longest time of an idle connection, and for a request's head. A proxy in front must close its idle connections
    /// earlier; otherwise it sends requests into connections that just ended.
    pub keep_alive: Duration,
    /// Longest time in which a client reads nothing of its answer.
    pub write_timeout: Duration,
}

impl ServerOptions {
    /// Health and metrics only, with 1 024 connections, 75 seconds of an idle one, and 30 seconds without reading.
    pub fn new(listen: SocketAddr, probe: Arc<dyn Probe>) -> Self {
        let keep_alive = Duration::from_secs(75);
        let write_timeout = Duration::from_secs(30);
        Self { listen, probe, api: None, max_connections: 1024, keep_alive, write_timeout }
    }
}

impl std::fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptions").field("listen", &self.listen).field("api", &self.api).finish_non_exhaustive()
    }
}

/// A server on its own threads. Dropping it stops it at once.
pub struct Server {
    address: SocketAddr,
    shared: Arc<ServerState>,
    running: Option<Running>,
}

struct Running {
    runtime: Runtime,
    stop: oneshot::Sender<Duration>,
    accepting: JoinHandle<usize>,
}

impl Server {
    /// Starts to listen and returns.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(options: ServerOptions) -> Result<Self, ServeError> {
        let ServerOptions { listen, probe, api, max_connections, keep_alive, write_timeout } = options;
        if max_connections == 0 {
            return Err(ServeError::Options("a server has at least one connection".to_owned()));
        }
        let (router, shared) = routes::router(probe, api)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(MAX_BLOCKING)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(ServeError::Threads)?;
        let context = runtime.enter();
        let bound = bind(listen).and_then(|bound| Ok((bound.local_addr()?, bound)));
        drop(context);
        let (address, listener) = bound.map_err(|source| ServeError::Bind { address: listen, source })?;
        let (stop, stopped) = oneshot::channel();
        let places = Arc::new(Semaphore::new(max_connections as usize));
        let door = Door { router, keep_alive, write_timeout, max_connections, places, guests: Arc::default() };
        let accepting = runtime.spawn(door.keep(listener, stopped));
        Ok(Self { address, shared, running: Some(Running { runtime, stop, accepting }) })
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
        let (Some(serving), Some(running)) = (self.shared.serving.clone(), &self.running) else { return };
        running.runtime.spawn_blocking(move || {
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
        let Some(Running { runtime, stop, accepting }) = self.running.take() else { return 0 };
        // The task listens until this message, so it cannot have ended before.
        let _ = stop.send(deadline);
        let cut = runtime.block_on(accepting).unwrap_or_default();
        runtime.shutdown_background();
        cut
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
}

/// The connections that have not been asked to leave.
#[derive(Default)]
struct GuestList(Mutex<Vec<Arc<Guest>>>);

impl GuestList {
    fn guests(&self) -> MutexGuard<'_, Vec<Arc<Guest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the connection to leave that has been idle longest, if one is idle.
    fn ask_longest_idle(&self) {
        let mut guests = self.guests();
        let mut longest: Option<(Instant, usize)> = None;
        for (place, guest) in guests.iter().enumerate() {
            if let GuestActivity::New(since) | GuestActivity::Idle(since) = *guest.activity()
                && longest.is_none_or(|(other, _)| since < other)
            {
                longest = Some((since, place));
            }
        }
        if let Some((_, place)) = longest {
            guests.swap_remove(place).leave.notify_one();
        }
    }
}

/// Accepts clients.
struct Door {
    router: Router,
    keep_alive: Duration,
    write_timeout: Duration,
    max_connections: u32,
    places: Arc<Semaphore>,
    guests: Arc<GuestList>,
}

impl Door {
    /// Returns the number of connections that had to be cut off.
    async fn keep(self, listener: TcpListener, mut stopped: oneshot::Receiver<Duration>) -> usize {
        let deadline = loop {
            tokio::select! {
                deadline = &mut stopped => break deadline.unwrap_or_default(),
                () = self.admit(&listener) => {}
            }
        };
        drop(listener);
        for guest in self.guests.guests().drain(..) {
            guest.leave.notify_one();
        }
        match timeout(deadline, self.places.acquire_many(self.max_connections)).await {
            Ok(_) => 0,
            Err(_) => self.max_connections as usize - self.places.available_permits(),
        }
    }

    /// Accepts the next client, and serves it once there is a place.
    async fn admit(&self, listener: &TcpListener) {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                return tokio::time::sleep(BREATH).await;
            }
        };
        let place = loop {
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                break place;
            }
            self.guests.ask_longest_idle();
            if let Ok(Ok(place)) = timeout(LEAVING, Arc::clone(&self.places).acquire_owned()).await {
                break place;
            }
        };
        let guest = Guest { activity: Mutex::new(GuestActivity::New(Instant::now())), leave: Notify::new() };
        let guest = Arc::new(guest);
        self.guests.guests().push(Arc::clone(&guest));
        self.serve(stream, peer, guest, place);
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, guest: Arc<Guest>, place: OwnedSemaphorePermit) {
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
        let guests = Arc::clone(&self.guests);
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = guest.leave.notified() => {
                    let is_new = matches!(*guest.activity(), GuestActivity::New(_));
                    if is_new {
                        // hyper would wait for the rest of the head.
                        Ok(())
                    } else {
                        // Closes now, or once the answer is delivered.
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            };
            // Broken connections are ordinary, so they are logged at debug level only.
            if let Err(error) = ended {
                tracing::debug!(%error, "connection");
            }
            guests.guests().retain(|other| !Arc::ptr_eq(other, &guest));
            drop(place);
        });
    }
}
