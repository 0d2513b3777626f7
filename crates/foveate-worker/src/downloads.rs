//! Downloads: a task for each request, and a turn at its site.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foveate_core::error_chain;
use foveate_net::{CodedFile, DownloadRoom, NetError};
use foveate_queue::ImageRef;
use foveate_source::{FetchError, Item as Object};
use tokio::time::timeout;
use tracing::Instrument;

use crate::engine_state::{EngineItem, EngineState, Form};
use crate::memory_budget::MemoryShare;
use crate::{Failure, File, Setting, Stage, sites};

/// Longest wait for a turn at a slow site, and the interval at which a waiting download looks whether it still should.
const PATIENCE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(1);

/// Passes an item on to its next stage: a download's task, or a thread.
pub(crate) fn pass_on(shared: &Arc<EngineState>, mut item: EngineItem) {
    item.queued = Instant::now();
    match item.form {
        Some(Form::At(_)) if shared.has_downloads => {
            // The item fails if the engine stops.
            let download = shared.stopped.clone().run_until_cancelled_owned(download(Arc::clone(shared), item));
            shared.runtime.spawn(download);
        }
        Some(Form::At(_) | Form::File(_) | Form::Coded(..) | Form::Text(_)) if shared.workers > 0 => {
            let site = item.site.clone();
            shared.files.push(&site, item);
        }
        // Refused only when the engine stops: dropping the item then reports the failure.
        _ => drop(shared.tasks[item.task].ready.push(item, 0)),
    }
}

async fn download(shared: Arc<EngineState>, item: EngineItem) {
    if shared.is_full(&item.site) {
        return drop(shared.end(item, Err(slow())));
    }
    let since = Instant::now();
    let mut taking = pin!(shared.turns.take(item.site.clone()));
    let turn = loop {
        if let Ok(turn) = timeout(TICK, &mut taking).await {
            break Some(turn);
        }
        if !item.done.is_wanted() {
            break None;
        }
        if since.elapsed() > PATIENCE && sites::is_slow(&shared.turns, &item.site) {
            return drop(shared.end(item, Err(slow())));
        }
    };
    let Some(mut item) = shared.begin("download", item) else { return };
    let done = downloaded(&shared, &mut item).await;
    drop(turn);
    if let Some(item) = shared.end(item, done) {
        pass_on(&shared, item);
    }
}

/// Downloads an item's file unless it is here already.
pub(crate) async fn downloaded(shared: &Arc<EngineState>, item: &mut EngineItem) -> Result<(), Failure> {
    let Some(Form::At(reference)) = &item.form else { return Ok(()) };
    let span = tracing::info_span!(parent: &item.span, "download");
    let start = Instant::now();
    let share = shared.memory.share(item.site.clone());
    let downloaded = file(shared, reference, share).instrument(span).await;
    shared.note("download", item, start, downloaded.is_ok());
    item.form = Some(downloaded?);
    Ok(())
}

async fn file(shared: &Arc<EngineState>, reference: &ImageRef, mut share: MemoryShare) -> Result<Form, Failure> {
    let mut bytes = Vec::new();
    let coded = match reference {
        ImageRef::Url(url) => get(shared, url, &mut share, &mut bytes).await?,
        ImageRef::Object(key) => {
            bytes = fetch(shared, key, &mut share).await?;
            None
        }
    };
    share.settle(bytes.len() as u64);
    let file = File::new(bytes, Some(share));
    Ok(match coded {
        Some(coded) => Form::Coded(Box::new(coded), file),
        None => Form::File(file),
    })
}

/// Downloads a URL.
async fn get(
    shared: &EngineState,
    url: &str,
    share: &mut MemoryShare,
    out: &mut Vec<u8>,
) -> Result<Option<CodedFile>, Failure> {
    let client = shared.client.as_ref().ok_or_else(|| no(Setting::ImageHost, "URLs"))?;
    let got = client.get_coded(url, share, out).await;
    got.map_err(|error| Failure { untried: share.is_refused, ..failure(error) })
}

/// Undoes a file's codings, which takes a thread's time and not the runtime's.
pub(crate) fn decoded(coded: &CodedFile, File { bytes, share }: File) -> Result<File, Failure> {
    let bytes = coded.decode(&bytes).map_err(failure)?;
    let mut share = share;
    match share.as_mut().is_none_or(|share| share.resize(bytes.len() as u64)) {
        true => Ok(File::new(bytes, share)),
        false => Err(Failure::untried(Stage::Download, "there is no memory for its decoded bytes now")),
    }
}

fn failure(error: NetError) -> Failure {
    Failure {
        transient: error.transient,
        retry_after: error.retry_after,
        reached: error.reached,
        setting: error.rule.map(|_| Setting::ImageHost),
        ..Failure::permanent(Stage::Download, error.reason)
    }
}

/// Reads an object, on a thread that may block.
async fn fetch(shared: &Arc<EngineState>, key: &str, share: &mut MemoryShare) -> Result<Vec<u8>, Failure> {
    let objects = shared.objects.clone().ok_or_else(|| no(Setting::Objects, "objects"))?;
    if !share.grow(shared.max_bytes).await {
        return Err(Failure::untried(Stage::Download, "there is no memory for an object now"));
    }
    let object = Object { id: key.to_owned(), locator: key.as_bytes().to_vec(), ..Object::default() };
    let reading = shared.runtime.spawn_blocking(move || {
        let mut bytes = Vec::new();
        objects.fetch().fetch(&object, &mut bytes).map(|()| bytes)
    });
    let read = reading.await.map_err(|error| Failure::transient(Stage::Download, error.to_string()))?;
    read.map_err(|error| Failure {
        // Refused credentials are this worker's, and may be others in a minute.
        transient: error.is_transient() || matches!(error, FetchError::Denied(_)),
        ..Failure::permanent(Stage::Download, error_chain(&error))
    })
}

/// The failure of an image whose site has enough to do.
pub(crate) fn slow() -> Failure {
    Failure::untried(Stage::Download, "its server is slow, and enough downloads wait for it")
}

fn no(setting: Setting, what: &str) -> Failure {
    Failure::of_setting(setting, Stage::Download, format!("this worker reads no {what}"))
}
