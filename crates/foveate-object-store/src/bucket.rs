//! Buckets, opened with the settings that users give and with what the clouds' own tools find.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foveate_source::store::StoreOptions;
use foveate_source::{FetchError, SourceError};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::PaginatedListStore;
use object_store::{ObjectStore, RetryConfig};

use crate::address::{BucketPlace, StoreKind, shown};
use crate::aws;
use crate::connect::Connector;
use crate::control::ControlObject;
use crate::errors::cause;

/// The known settings.
const SETTINGS: [&str; 9] =
    ["account", "anonymous", CONDITIONAL, "endpoint", "profile", "region", PAYS, RETRY, "virtual-hosted"];

/// Setting: seconds for which failed requests are repeated.
const RETRY: &str = "retry-for";

/// Setting: true if the requester pays; for Google, the project that does.
const PAYS: &str = "requester-pays";

/// Setting: true if an object can be created on the condition that there is none of its name.
const CONDITIONAL: &str = "conditional-writes";

/// A bucket.
#[derive(Clone)]
pub(crate) struct Bucket {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) pages: Arc<dyn PaginatedListStore>,
    /// Of requests for bytes, and of those for metadata alone.
    pub(crate) controls: Arc<[ControlObject; 2]>,
}

impl Bucket {
    fn listed<S: ObjectStore + PaginatedListStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self { objects: store.clone(), pages: store, controls: ControlObject::pair() }
    }
}

/// Settings with which buckets are opened.
pub(crate) struct BucketSettings {
    values: BTreeMap<String, String>,
    connector: Connector,
}

impl BucketSettings {
    /// # Errors
    /// If a setting is unknown or has an impossible value.
    pub(crate) fn new(options: &StoreOptions) -> Result<Self, SourceError> {
        let values = options.settings(&SETTINGS)?.clone();
        let settings = Self { values, connector: Connector::new()? };
        for name in ["anonymous", CONDITIONAL, "virtual-hosted"] {
            settings.flag(name)?;
        }
        if let Some(value) = settings.values.get(RETRY)
            && settings.retry_for().is_none()
        {
            return Err(SourceError::Invalid(format!("{RETRY} '{value}' has to be a number of seconds")));
        }
        match settings.values.get("endpoint") {
            Some(endpoint) if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") => {
                let why = format!("endpoint '{endpoint}' has to begin with http:// or https://");
                Err(SourceError::Invalid(why))
            }
            _ => Ok(settings),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, SourceError> {
        match self.values.get(name).map(String::as_str) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(SourceError::Invalid(format!("{name} '{other}' has to be true or false"))),
        }
    }

    fn is_set(&self, name: &str) -> bool {
        self.flag(name).unwrap_or_default()
    }

    /// Returns true if an object can be created on the condition that there is none of its name.
    pub(crate) fn is_conditional(&self) -> bool {
        self.values.get(CONDITIONAL).is_none_or(|value| value == "true")
    }

    /// Returns the time for which failed requests are repeated, if that is set.
    pub(crate) fn retry_for(&self) -> Option<Duration> {
        self.values.get(RETRY)?.parse::<u32>().ok().map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Opens the bucket of `place`. Makes no request to it, but one to an endpoint that the settings name.
    pub(crate) async fn open(&self, place: &BucketPlace) -> Result<Bucket, FetchError> {
        if let Some(endpoint) = self.values.get("endpoint") {
            let reached = self.connector.reach(endpoint).await;
            reached
                .map_err(|why| FetchError::Unreachable(format!("the endpoint {endpoint} cannot be reached: {why}")))?;
        }
        let connector = self.connector(place.kind)?;
        let opened = match place.kind {
            StoreKind::S3 => self.s3(place, connector).await,
            StoreKind::Google => self.google(place, connector),
            StoreKind::Azure => self.azure(place, connector),
        };
        opened.map_err(|error| FetchError::Refused(format!("{}: {}", shown(&place.root), cause(&error))))
    }

    /// The connector for a kind of store, whose requests are paid for as the settings say.
    fn connector(&self, kind: StoreKind) -> Result<Connector, FetchError> {
        let why = match (kind, self.values.get(PAYS).map_or("false", String::as_str)) {
            (_, "false") | (StoreKind::S3, "true") => return Ok(self.connector.clone()),
            (StoreKind::S3, _) => "it has to be true or false for S3",
            (StoreKind::Google, "true") => "Google needs the project that pays as its value",
            (StoreKind::Google, project) => match self.connector.paid_by(project) {
                Some(connector) => return Ok(connector),
                None => "that is no project",
            },
            (StoreKind::Azure, _) => "only S3 and Google have such requests; leave the setting out",
        };
        Err(FetchError::Refused(format!("{PAYS}: {why}")))
    }

    async fn s3(&self, place: &BucketPlace, connector: Connector) -> object_store::Result<Bucket> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket_name(place));
        for (name, key) in [("region", AmazonS3ConfigKey::Region), ("endpoint", AmazonS3ConfigKey::S3Endpoint)] {
            if let Some(value) = self.values.get(name) {
                builder = builder.with_config(key, value);
            }
        }
        for (name, key) in [
            ("anonymous", AmazonS3ConfigKey::SkipSignature),
            (PAYS, AmazonS3ConfigKey::RequestPayer),
            ("virtual-hosted", AmazonS3ConfigKey::VirtualHostedStyleRequest),
        ] {
            if self.is_set(name) {
                builder = builder.with_config(key, "true");
            }
        }
        let builder = aws::completed(builder, &self.values).await;
        builder.with_http_connector(connector).with_retry(no_retries()).build().map(Bucket::listed)
    }

    fn google(&self, place: &BucketPlace, connector: Connector) -> object_store::Result<Bucket> {
        let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket_name(place));
        if let Some(endpoint) = self.values.get("endpoint") {
            builder = builder.with_base_url(endpoint);
        }
        if self.is_set("anonymous") {
            builder = builder.with_skip_signature(true);
        }
        builder.with_http_connector(connector).with_retry(no_retries()).build().map(Bucket::listed)
    }

    fn azure(&self, place: &BucketPlace, connector: Connector) -> object_store::Result<Bucket> {
        let mut builder = MicrosoftAzureBuilder::from_env().with_url(&place.root).with_allow_http(true);
        if let Some(account) = self.values.get("account") {
            builder = builder.with_account(account);
        }
        if let Some(endpoint) = self.values.get("endpoint") {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if self.is_set("anonymous") {
            builder = builder.with_skip_signature(true);
        }
        builder.with_http_connector(connector).with_retry(no_retries()).build().map(Bucket::listed)
    }
}

fn bucket_name(place: &BucketPlace) -> &str {
    place.root.split_once("://").map_or("", |(_, bucket)| bucket)
}

/// Requests are repeated in one place, [`crate::retry`], which knows how far an object was read.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}
