//! The results that a worker called back.

use std::collections::BTreeMap;

use foveate_net::photo_server::PhotoServer;
use serde::Deserialize;

use super::service::photo;
use crate::LabError;
use crate::bench::cells::wrong;
use crate::wrap::cosine;

/// Minimum cosine between the vectors of the same photo: half precision may depend slightly on the batch.
const SAME: f64 = 0.999;

/// The vector of each photo of the set, by its number.
pub(super) type PhotoVectors = BTreeMap<usize, Vec<f32>>;

/// Checks callbacks as they arrive. It keeps one vector per photo, so that a long sample takes no more memory than a
/// short one.
pub(super) struct CallbackLedger<'a> {
    /// Photos of the set, which the server repeats.
    photos: usize,
    /// The vectors to compare with; `None` keeps the first of each photo.
    expected: Option<&'a PhotoVectors>,
    /// True if the vectors must match bit for bit.
    is_exact: bool,
    /// True for each request that was called back.
    called: Vec<bool>,
    /// The photos' vectors, if there are none to compare with.
    pub(super) vectors: PhotoVectors,
    /// Minimum cosine with the expected vectors; `None` if all are identical.
    pub(super) cosine: Option<f64>,
}

/// The content of a callback.
#[derive(Deserialize)]
struct CallbackBody {
    id: String,
    result: CallbackResult,
}

#[derive(Deserialize)]
struct CallbackResult {
    embedding: Vec<f32>,
}

impl<'a> CallbackLedger<'a> {
    pub(super) fn new(photos: usize, expected: Option<&'a PhotoVectors>, is_exact: bool) -> Self {
        Self { photos, expected, is_exact, called: Vec::new(), vectors: PhotoVectors::new(), cosine: None }
    }

    /// Checks the callbacks that have arrived since the last time.
    pub(super) fn take(&mut self, server: &PhotoServer) -> Result<(), LabError> {
        for (_, body) in server.callbacks().take_received() {
            let body = serde_json::from_slice(&body).map_err(|error| wrong(format!("a callback: {error}")))?;
            self.add(body)?;
        }
        Ok(())
    }

    fn add(&mut self, CallbackBody { id, result }: CallbackBody) -> Result<(), LabError> {
        let request: usize = id.parse().map_err(|_| wrong(format!("a callback for '{id}'")))?;
        if self.called.len() <= request {
            self.called.resize(request + 1, false);
        }
        if std::mem::replace(&mut self.called[request], true) {
            return Err(wrong(format!("request {id} was called back twice")));
        }
        let photo = request % self.photos.max(1);
        let Some(expected) = self.expected else {
            self.vectors.entry(photo).or_insert(result.embedding);
            return Ok(());
        };
        let known = expected.get(&photo).map_or(&[][..], Vec::as_slice);
        if known == result.embedding {
            return Ok(());
        }
        let likeness = if known.len() == result.embedding.len() { cosine(known, &result.embedding) } else { 0.0 };
        if self.is_exact || likeness < SAME {
            return Err(wrong(format!("photos have other vectors than in configuration 1, cosine {likeness}")));
        }
        self.cosine = Some(self.cosine.map_or(likeness, |least| least.min(likeness)));
        Ok(())
    }

    /// Checks that each of the `requests` was downloaded and called back exactly once.
    pub(super) fn check(&self, server: &PhotoServer, requests: usize) -> Result<(), LabError> {
        let called = self.called.iter().filter(|called| **called).count();
        let again = (0..requests).filter(|&request| server.requests(&photo(request)) != 1).count();
        if called != requests || self.called.len() > requests || again > 0 {
            return Err(wrong(format!(
                "{called} of {requests} requests were called back, {again} not downloaded once"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(id: &str, embedding: &[f32]) -> CallbackBody {
        CallbackBody { id: id.to_owned(), result: CallbackResult { embedding: embedding.to_vec() } }
    }

    #[test]
    fn each_request_is_called_back_once_with_its_photos_vector() {
        let mut first = CallbackLedger::new(2, None, true);
        first.add(body("1", &[0.0, 1.0])).unwrap();
        first.add(body("0", &[1.0, 0.0])).unwrap();
        assert!(first.add(body("1", &[0.0, 1.0])).unwrap_err().to_string().contains("request 1 was called back twice"));
        assert!(first.add(body("x", &[0.0, 1.0])).unwrap_err().to_string().contains("a callback for 'x'"));

        let mut exact = CallbackLedger::new(2, Some(&first.vectors), true);
        exact.add(body("3", &[0.0, 1.0])).unwrap();
        assert!(exact.add(body("2", &[1.0, 1e-4])).unwrap_err().to_string().contains("other vectors"));
        let mut close = CallbackLedger::new(2, Some(&first.vectors), false);
        close.add(body("2", &[1.0, 1e-2])).unwrap();
        assert!(close.cosine.is_some_and(|cosine| (0.999..1.0).contains(&cosine)), "{:?}", close.cosine);
        assert!(close.add(body("4", &[1.0, 1.0])).unwrap_err().to_string().contains("cosine 0.7"));
        assert!(close.add(body("6", &[1.0])).unwrap_err().to_string().contains("cosine 0"));
    }
}
