use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use foveate_source::{Fetch, FetchError, FetchOptions, Item, SourceError};
use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{BackoffConfig, ObjectStoreExt, RetryConfig};
use tokio::runtime::Runtime;

use crate::address::{Address, Allowed};
use crate::connect::Connector;

/// Retries within one read; callers with a queue retry again later.
const RETRIES: usize = 2;

/// The allowed buckets, and the state that all readers share.
pub(crate) struct Stores {
    allowed: Vec<Allowed>,
    buckets: BTreeMap<String, AmazonS3>,
    max_bytes: u64,
    timeout: Duration,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Stores {
    pub(crate) fn new(builder: &AmazonS3Builder, options: &FetchOptions) -> Result<Self, SourceError> {
        let allowed: Vec<Allowed> = options.allow.iter().map(|text| Allowed::parse(text)).collect::<Result<_, _>>()?;
        if allowed.is_empty() {
            return Err(SourceError::Invalid(
                "no bucket may be read; allow s3://bucket or s3://bucket/folder".to_owned(),
            ));
        }
        let builder = configured(builder, options)?;
        let mut buckets = BTreeMap::new();
        for Allowed { bucket, .. } in &allowed {
            let store = builder.clone().with_bucket_name(bucket).build();
            let store = store.map_err(|e| SourceError::Invalid(format!("s3://{bucket}: {}", cause(&e))))?;
            buckets.insert(bucket.clone(), store);
        }
        let (max_bytes, timeout) = (options.max_bytes, options.timeout);
        Ok(Self { allowed, buckets, max_bytes, timeout, runtime: Some(runtime()?) })
    }

    fn read(&self, locator: &[u8], out: &mut Vec<u8>) -> Result<(), FetchError> {
        let address = Address::parse(locator)?;
        let store = self.buckets.get(&address.bucket).filter(|_| self.allowed.iter().any(|to| to.covers(&address)));
        let (Some(store), Some(runtime)) = (store, &self.runtime) else {
            let Address { bucket, key } = address;
            return Err(FetchError::Refused(format!(
                "s3://{bucket}/{key} is not in a bucket or folder that may be read"
            )));
        };
        let reading = async { tokio::time::timeout(self.timeout, self.download(store, &address, out)).await };
        runtime.block_on(reading).unwrap_or_else(|_| {
            let Address { bucket, key } = &address;
            Err(FetchError::Unreachable(format!("s3://{bucket}/{key}: not read within {:?}", self.timeout)))
        })
    }

    async fn download(&self, store: &AmazonS3, address: &Address, out: &mut Vec<u8>) -> Result<(), FetchError> {
        let failed = |error| failure(address, &error);
        let object = store.get(&address.key).await.map_err(failed)?;
        let bytes = object.meta.size;
        self.check(bytes)?;
        out.reserve(bytes as usize);
        let mut parts = object.into_stream();
        while let Some(part) = parts.next().await {
            let part = part.map_err(failed)?;
            self.check((out.len() + part.len()) as u64)?;
            out.extend_from_slice(&part);
        }
        match out.len() as u64 == bytes {
            true => Ok(()),
            false => {
                let (Address { bucket, key }, got) = (address, out.len());
                Err(FetchError::Unreachable(format!("s3://{bucket}/{key}: {got} of {bytes} bytes came")))
            }
        }
    }

    fn check(&self, bytes: u64) -> Result<(), FetchError> {
        match bytes > self.max_bytes {
            true => Err(FetchError::TooLarge { bytes, limit: self.max_bytes }),
            false => Ok(()),
        }
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        // Waiting for the runtime would panic if the last reader is dropped inside another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reads objects whose locator is `s3://bucket/key`.
pub(crate) struct ObjectFetch {
    stores: Arc<Stores>,
}

impl ObjectFetch {
    pub(crate) fn new(stores: Arc<Stores>) -> Self {
        Self { stores }
    }
}

impl Fetch for ObjectFetch {
    fn fetch(&mut self, item: &Item, out: &mut Vec<u8>) -> Result<(), FetchError> {
        out.clear();
        let result = self.stores.read(&item.locator, out);
        if result.is_err() {
            out.clear();
        }
        result
    }
}

fn configured(builder: &AmazonS3Builder, options: &FetchOptions) -> Result<AmazonS3Builder, SourceError> {
    let retry = RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: options.timeout };
    let mut builder = builder.clone().with_http_connector(Connector::new()?).with_retry(retry);
    let settings = options.settings(&["endpoint", "region"])?;
    if let Some(endpoint) = settings.get("endpoint") {
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(SourceError::Invalid(format!("endpoint '{endpoint}' has to begin with http:// or https://")));
        }
        builder = builder.with_endpoint(endpoint);
    }
    Ok(settings.get("region").map_or(builder.clone(), |region| builder.with_region(region)))
}

fn runtime() -> Result<Runtime, SourceError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("object-store")
        .enable_io()
        .enable_time()
        .build();
    runtime.map_err(|source| SourceError::Io { action: "starting a thread for the object store".to_owned(), source })
}

fn failure(Address { bucket, key }: &Address, error: &object_store::Error) -> FetchError {
    use object_store::Error::{InvalidPath, NotFound, PermissionDenied, Unauthenticated};
    match error {
        NotFound { .. } => FetchError::NotFound(format!("s3://{bucket}/{key}")),
        PermissionDenied { .. } | Unauthenticated { .. } | InvalidPath { .. } => FetchError::Refused(format!(
            "s3://{bucket}/{key}: the store refuses it ({}); look at the credentials, their rights and the region",
            cause(error)
        )),
        error => FetchError::Unreachable(format!("s3://{bucket}/{key}: {}", cause(error))),
    }
}

/// The innermost cause in one line, because the outer errors repeat the address.
fn cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    let text = innermost.to_string();
    let text = answered(&text).unwrap_or(text);
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    line.trim().to_owned()
}

/// The status and the code of a response that the library quotes in full. The rest of its body may repeat the request,
/// which has the key's id and possibly a session token.
fn answered(text: &str) -> Option<String> {
    const LONGEST: usize = 64;
    let answer = text.strip_prefix("Server returned ")?;
    // The library also has an error for answers with a good status, which it does not report.
    let (status, body) = answer
        .strip_prefix("non-2xx status code: ")
        .and_then(|rest| rest.split_once(": "))
        .unwrap_or(("an error", answer));
    let code = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let is_code =
        |code: &&str| (1..=LONGEST).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    match code.filter(is_code) {
        Some(code) => Some(format!("{status}: {code}")),
        None => Some(status.to_owned()),
    }
}
