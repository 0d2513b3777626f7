//! AWS as its own tools find it: the environment, profiles, a web identity, the container's or the machine's role.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::client::CredentialProvider;
use tokio::sync::Mutex;

use crate::errors::cause;

/// Credentials are renewed this long before they expire.
const BEFORE_EXPIRY: Duration = Duration::from_secs(120);

/// Places in which the SDK looks for credentials.
const SEARCHED: &str = "searched were AWS_ACCESS_KEY_ID, the profile in ~/.aws, a web identity, and the role of the \
                        container or the machine; public buckets need the setting anonymous=true alone";

/// The region of stores that have none.
const NO_REGION: &str = "us-east-1";

/// Completes the builder where the settings and the environment leave something open.
pub(crate) async fn completed(builder: AmazonS3Builder, settings: &BTreeMap<String, String>) -> AmazonS3Builder {
    let is_unsigned = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature).is_some_and(|skip| skip == "true");
    let profile = settings.get("profile");
    let has_keys = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_some() && profile.is_none();
    let has_region = builder.get_config_value(&AmazonS3ConfigKey::Region).is_some();
    if has_region && (is_unsigned || has_keys) {
        return builder;
    }
    let config = config(builder.get_config_value(&AmazonS3ConfigKey::Region), profile, is_unsigned).await;
    let mut builder = builder;
    if !has_region {
        builder = builder.with_region(config.region().map_or(NO_REGION, Region::as_ref));
    }
    let has_endpoint = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint]
        .iter()
        .any(|key| builder.get_config_value(key).is_some());
    if let Some(endpoint) = config.endpoint_url().filter(|_| !has_endpoint) {
        builder = builder.with_endpoint(endpoint);
    }
    match config.credentials_provider().filter(|_| !is_unsigned && !has_keys) {
        Some(provider) => builder.with_credentials(Arc::new(Credentials { provider, state: Mutex::default() })),
        None => builder,
    }
}

async fn config(region: Option<String>, profile: Option<&String>, is_unsigned: bool) -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12()).http_client(http);
    if let Some(region) = region {
        loader = loader.region(Region::new(region));
    }
    if let Some(profile) = profile {
        loader = loader.profile_name(profile);
    }
    if is_unsigned {
        loader = loader.no_credentials();
    }
    loader.load().await
}

/// The SDK's credentials, kept until they expire.
struct Credentials {
    provider: SharedCredentialsProvider,
    state: Mutex<CredentialState>,
}

#[derive(Default)]
struct CredentialState {
    last: Option<(Arc<AwsCredential>, Option<SystemTime>)>,
    /// The time of the latest failed renewal, and the reason.
    failed: Option<(Instant, String)>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

fn unauthenticated(why: String) -> object_store::Error {
    object_store::Error::Unauthenticated { path: "credentials".to_owned(), source: why.into() }
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let began = Instant::now();
        let mut state = self.state.lock().await;
        if let Some((credential, end)) = &state.last
            && end.is_none_or(|end| end > SystemTime::now() + BEFORE_EXPIRY)
        {
            return Ok(Arc::clone(credential));
        }
        // All requests that waited have the failure, so that they do not fail one after the other.
        if let Some((_, why)) = state.failed.as_ref().filter(|(when, _)| *when >= began) {
            return Err(unauthenticated(why.clone()));
        }
        let found = match self.provider.provide_credentials().await {
            Ok(found) => found,
            Err(error) => {
                let why = format!("no credentials: {}; {SEARCHED}", cause(&error));
                state.failed = Some((Instant::now(), why.clone()));
                return Err(unauthenticated(why));
            }
        };
        let credential = Arc::new(AwsCredential {
            key_id: found.access_key_id().to_owned(),
            secret_key: found.secret_access_key().to_owned(),
            token: found.session_token().map(str::to_owned),
        });
        state.last = Some((Arc::clone(&credential), found.expiry()));
        Ok(credential)
    }
}
