//! The embeddings API while it is served: its room, its keys, and who may ask.

use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use foveate_queue::Job;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::Semaphore;

use crate::api::Api;
use crate::error::ServeError;
use crate::limits::MAX_SENDS;
use crate::memory::Memory;
use crate::problem::Problem;

/// The API while it is served.
pub(crate) struct Serving {
    pub(crate) api: Api,
    pub(crate) memory: Memory,
    /// Leave to put a request into the queue.
    pub(crate) sends: Arc<Semaphore>,
    /// The task of requests that name none.
    pub(crate) task: String,
    keys: Vec<[u8; 32]>,
}

impl Serving {
    pub(crate) fn new(mut api: Api) -> Result<Self, ServeError> {
        api.check()?;
        let keys = std::mem::take(&mut api.tokens).iter().map(|key| digest(key.as_bytes())).collect();
        let usual = api.engine.tasks().find(|task| *task == Job::DEFAULT_TASK).or_else(|| api.engine.tasks().next());
        let task = usual.unwrap_or_else(|| unreachable!("an engine has a task")).to_owned();
        let sends = Arc::new(Semaphore::new(MAX_SENDS));
        Ok(Self { memory: Memory::new(api.max_bytes_in_hand), sends, task, keys, api })
    }

    pub(crate) fn needs_key(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether the client may ask, and who it is. Keys are compared by their digests, all of them whatever the first
    /// ones say: how long it takes tells nothing.
    pub(crate) fn authorize(&self, headers: &HeaderMap) -> Result<Client, Problem> {
        if !self.needs_key() {
            return Ok(Client { key: None });
        }
        let sent = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let sent_digest = digest(sent.unwrap_or_default());
        let known = self.keys.iter().fold(Choice::from(0), |known, key| known | key.ct_eq(&sent_digest));
        if known.into() {
            return Ok(Client { key: Some(sent_digest) });
        }
        let detail = if sent.is_some() { "this API key is not known" } else { "there is no API key" };
        let remedy = "send one that the operator gave you: 'Authorization: Bearer KEY'";
        Err(Problem::new(StatusCode::UNAUTHORIZED, detail, remedy))
    }
}

/// Who asks: everybody is one client where there are no keys.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    /// Its key's digest.
    key: Option<[u8; 32]>,
}

impl Client {
    /// What the queue is to know the job of this id by. Two clients may choose one id without knowing of each other,
    /// and the queue drops what it has already.
    pub(crate) fn message_id(&self, id: &str) -> String {
        let Some(key) = self.key else { return id.to_owned() };
        let digest = Sha256::new().chain_update(key).chain_update(id).finalize();
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}
