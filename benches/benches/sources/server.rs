//! The store: `s3s-fs` behind a proxy with the latency of a distant server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foveate_benches::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// From a request to the first byte of its answer.
pub(crate) const DELAY: Duration = Duration::from_millis(100);

/// A running server, which ends with this value.
pub(crate) struct Server {
    process: Child,
    /// The proxy's threads.
    _runtime: Runtime,
    proxy: SocketAddr,
}

impl Server {
    /// Serves the folders of `root` as buckets.
    pub(crate) fn start(root: &Path) -> Result<Self> {
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("s3s-fs");
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]).arg(root).env("RUST_LOG", "off");
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.map_err(|error| format!("cannot start s3s-fs: {error}"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let proxy = runtime.block_on(proxy(address))?;
        let server = Self { process, _runtime: runtime, proxy };
        let begin = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            if begin.elapsed() > Duration::from_secs(20) {
                return Err("s3s-fs does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// The store's URL.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.proxy)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn proxy(server: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A broken connection is its client's to report.
                if let Ok(server) = TcpStream::connect(server).await {
                    let _ = forward(client, server).await;
                }
            });
        }
    });
    Ok(address)
}

async fn forward(client: TcpStream, server: TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // When the request came whose answer has not begun.
    let asked = Arc::new(Mutex::new(None));
    let asks = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len @ 1..) = from_client.read(&mut buffer).await {
            foveate_core::lock(&asks).get_or_insert_with(tokio::time::Instant::now);
            if to_server.write_all(&buffer[..len]).await.is_err() {
                break;
            }
        }
    });
    let mut buffer = vec![0; 256 << 10];
    while let len @ 1.. = from_server.read(&mut buffer).await? {
        let asked = foveate_core::lock(&asked).take();
        if let Some(asked) = asked {
            tokio::time::sleep_until(asked + DELAY).await;
        }
        to_client.write_all(&buffer[..len]).await?;
    }
    Ok(())
}
