//! The output's format and its place.

use std::path::Path;
use std::sync::Arc;

use foveate_core::Backend;
use foveate_sink::{Layout, Prefix, RunManifest, SinkBackend, SinkOptions, SinkRegistry};
use foveate_source::store::scheme_of;

use super::registries::{has_extension, name_or_first};
use super::{Backends, EmbedError, Settings, by_name};

impl Settings {
    /// Checks the output's format, its settings and its place. Creates nothing.
    pub fn check_output(&self, backends: &Backends) -> Result<(), EmbedError> {
        let options = self.sink_options(0)?;
        let sink = backends.sinks.get(&self.sink_name(&backends.sinks)?)?;
        if !options.columns.is_empty() && !sink.has_columns() {
            let able = backends.sinks.iter().filter(|sink| sink.has_columns()).map(|sink| sink.name().to_owned());
            return Err(EmbedError::NoColumns { sink: sink.name().to_owned(), able: able.collect() });
        }
        sink.open(&options)?;
        let other = self.shard.and_then(|shard| Some((shard, shard.other_count(&self.output, options.layout)?)));
        if let Some((shard, file)) = other {
            return Err(EmbedError::ShardCount { shard, file });
        }
        foveate_sink::staging::check_place(&options)?;
        Ok(foveate_sink::staging::check_maker(&options, &RunManifest::default())?)
    }

    /// Chooses the output's sink, and collects its options.
    ///
    /// # Errors
    /// Fails if this build does not contain the sink, or cannot open the output's store.
    pub fn sink_and_options<'a>(&self, backends: &'a Backends) -> Result<(&'a SinkBackend, SinkOptions), EmbedError> {
        Ok((backends.sinks.get(&self.sink_name(&backends.sinks)?)?, self.sink_options(0)?))
    }

    pub(super) fn sink_name(&self, sinks: &SinkRegistry) -> Result<String, EmbedError> {
        let Some(name) = &self.storage.sink else { return sink_for(&self.output, sinks) };
        let sink = sinks.get(name)?;
        match Layout::of(&self.output) {
            Layout::File if is_of_another(&self.output, sink, sinks) => Err(EmbedError::OtherFormat {
                output: self.output.clone(),
                sink: sink.name().to_owned(),
                extension: sink.extension(),
            }),
            _ => Ok(sink.name().to_owned()),
        }
    }

    /// Opens the prefix that the output's address names; `None` for a path.
    pub fn prefix(&self) -> Result<Option<Arc<dyn Prefix>>, EmbedError> {
        let Some(address) = store_address(&self.output) else { return Ok(None) };
        let stores = crate::backends::prefixes();
        let scheme = scheme_of(address.as_bytes()).unwrap_or_default();
        let Some(store) = stores.iter().find(|store| store.schemes().contains(&scheme)) else {
            let known = stores.iter().flat_map(|store| store.schemes()).map(|scheme| format!("{scheme}://")).collect();
            return Err(EmbedError::OutputStore { output: self.output.clone(), known });
        };
        if Layout::of(&self.output) == Layout::File {
            return Err(EmbedError::OutputFile(self.output.clone()));
        }
        Ok(Some(store.open(address, &by_name(self.output_settings.as_ref().unwrap_or(&self.inputs.store_option)))?))
    }

    pub(super) fn sink_options(&self, first_index: u64) -> Result<SinkOptions, EmbedError> {
        Ok(SinkOptions {
            prefix: self.prefix()?,
            staging: self.staging.clone(),
            element: self.storage.out_dtype,
            part_items: self.part_items,
            first_index,
            shard: self.shard.map(|shard| (shard.index, shard.count)),
            columns: self.rows.columns.clone(),
            settings: by_name(&self.storage.sink_option),
            // `merge` waits for every shard, and takes its failures from there.
            publish_empty: self.shard.is_some(),
            check: self.check,
            ..SinkOptions::new(&self.output)
        })
    }
}

/// Returns the address of an output in a store (`s3://bucket/vectors/`); `None` for a path.
pub fn store_address(output: &Path) -> Option<&str> {
    output.to_str().filter(|text| scheme_of(text.as_bytes()).is_some())
}

fn sink_for(output: &Path, sinks: &SinkRegistry) -> Result<String, EmbedError> {
    if Layout::of(output) == Layout::Folder {
        return name_or_first(sinks, None);
    }
    let by_extension = sinks.iter().find(|sink| has_extension(output, sink));
    by_extension.map(|sink| sink.name().to_owned()).ok_or_else(|| {
        let extension = output.extension().unwrap_or_default().to_string_lossy().into_owned();
        let known = sinks.iter().map(|sink| format!(".{}", sink.extension())).collect();
        EmbedError::Extension { extension, known }
    })
}

/// Returns true if the name promises the format of another sink.
fn is_of_another(output: &Path, sink: &SinkBackend, sinks: &SinkRegistry) -> bool {
    !has_extension(output, sink) && sinks.iter().any(|other| has_extension(output, other))
}
