//! The embeddings API at run time: its room, its keys, and authorization.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use foveate_queue::Job;
use foveate_worker::Setting;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use crate::api::Api;
use crate::error::ServeError;
use crate::image_text::TextUse;
use crate::index::IndexSlot;
use crate::limits::MAX_SEARCHES;
use crate::memory::BodyMemory;
use crate::problem::ApiProblem;

/// The API at run time.
pub(crate) struct Serving {
    pub(crate) api: Api,
    pub(crate) memory: BodyMemory,
    /// The task of requests that name none.
    pub(crate) task: String,
    /// In seconds since the epoch.
    pub(crate) started: u64,
    pub(crate) index: Option<IndexSlot>,
    /// Permits to search, each of which takes all cores.
    pub(crate) searches: Arc<Semaphore>,
    /// Permits for queries of unfinished searches: as many as images may be in the engine.
    pub(crate) queries: Arc<Semaphore>,
    keys: RwLock<Vec<Key>>,
}

/// An API key.
#[derive(Clone)]
struct Key {
    /// For the log.
    name: String,
    digest: [u8; 32],
}

/// Parses keys, each `KEY` or `NAME KEY`.
fn parse(tokens: &[String]) -> Result<Vec<Key>, ServeError> {
    let mut keys = Vec::new();
    for (token, number) in tokens.iter().zip(1..) {
        keys.push(match token.split_whitespace().collect::<Vec<_>>()[..] {
            [key] => Key { name: format!("key-{number}"), digest: digest(key.as_bytes()) },
            [name, key] => Key { name: name.to_owned(), digest: digest(key.as_bytes()) },
            _ => return Err(ServeError::Options(format!("API key {number} is not KEY or NAME KEY"))),
        });
    }
    Ok(keys)
}

impl Serving {
    pub(crate) fn new(mut api: Api) -> Result<Self, ServeError> {
        api.check()?;
        let keys = RwLock::new(parse(&std::mem::take(&mut api.tokens))?);
        let usual = api.engine.tasks().find(|task| *task == Job::DEFAULT_TASK).or_else(|| api.engine.tasks().next());
        let task = usual.unwrap_or_else(|| unreachable!("an engine has a task")).to_owned();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let index = api.index.take().map(IndexSlot::new);
        let searches = Arc::new(Semaphore::new(MAX_SEARCHES));
        let queries = Arc::new(Semaphore::new(api.engine.max_in_flight()));
        let memory = BodyMemory::new(api.max_bytes_in_hand);
        Ok(Self { started, memory, task, index, searches, queries, keys, api })
    }

    /// Checks a model's name.
    pub(crate) fn has_model(&self, name: &str) -> Result<(), ApiProblem> {
        let known = &self.api.models;
        if known.iter().any(|model| model == name) { Ok(()) } else { Err(ApiProblem::no_model(name, known)) }
    }

    /// The use of texts in requests for a task, or for the usual one.
    pub(crate) fn texts(&self, task: Option<&str>) -> TextUse {
        if self.api.engine.takes_texts(task.unwrap_or(&self.task)) {
            return TextUse::Embed;
        }
        let remedy = (self.api.remedy)(Setting::Texts);
        TextUse::Refuse(
            remedy.unwrap_or(r#"name an image, or send its bytes as {"image": base64}: this server embeds no texts"#),
        )
    }

    pub(crate) fn needs_key(&self) -> bool {
        !self.keys.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Replaces the keys. Without any, the server would answer everyone.
    pub(crate) fn set_keys(&self, tokens: &[String]) -> Result<(), ServeError> {
        let keys = parse(tokens)?;
        if keys.is_empty() {
            return Err(ServeError::Options("there are no API keys".to_owned()));
        }
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Returns the key that a client sent, if it is a known one. Compares the digests of all keys in constant time, so
    /// that the time reveals nothing.
    fn key(&self, headers: &HeaderMap) -> Option<Key> {
        let sent = digest(sent(headers)?);
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().fold(None, |found, key| if key.digest.ct_eq(&sent).into() { Some(key) } else { found }).cloned()
    }

    /// Returns the name of the key that a client sent, if it is a known one.
    pub(crate) fn key_name(&self, headers: &HeaderMap) -> Option<String> {
        self.key(headers).map(|key| key.name)
    }

    /// Authenticates the client.
    pub(crate) fn authorize(&self, headers: &HeaderMap) -> Result<(), ApiProblem> {
        if !self.needs_key() || self.key(headers).is_some() {
            return Ok(());
        }
        let detail = if sent(headers).is_some() { "this API key is not known" } else { "there is no API key" };
        let remedy = "send one that the operator gave you: 'Authorization: Bearer KEY'";
        Err(ApiProblem::new(StatusCode::UNAUTHORIZED, detail, remedy))
    }
}

/// The key in a request's headers.
fn sent(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, key) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}
