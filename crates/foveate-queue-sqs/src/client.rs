//! The SDK's client and the meaning of its errors.

use std::error::Error;
use std::fmt::Debug;
use std::io;
use std::time::Duration;

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{ProvideCredentials, SharedHttpClient};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use foveate_queue::QueueError;
use tokio::time::timeout;

use crate::options::SqsOptions;

/// Longest time for the service's answer, including the SDK's retries.
const ANSWER: Duration = Duration::from_secs(15);

/// A client with the queue's name.
pub(crate) struct SqsService {
    /// The queue's name, for errors.
    pub(crate) queue: String,
    pub(crate) client: Client,
}

impl SqsService {
    pub(crate) async fn open(options: &SqsOptions) -> Result<Self, QueueError> {
        let config = config(options).await;
        let service = Self { queue: options.name.clone(), client: Client::new(&config) };
        if config.region().is_none() {
            return Err(QueueError::Options("no region; give one (setting 'region', or AWS_REGION)".to_owned()));
        }
        service.check_credentials(&config).await?;
        Ok(service)
    }

    async fn check_credentials(&self, config: &SdkConfig) -> Result<(), QueueError> {
        let remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or an instance's role, or name a \
                      credentials file (setting 'credentials')";
        let Some(provider) = config.credentials_provider() else {
            return Err(self.refused(format!("no credentials; {remedy}")));
        };
        match timeout(ANSWER, provider.provide_credentials()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.refused(format!("no credentials ({}); {remedy}", chain(&error)))),
            Err(_) => Err(self.unreachable("the credentials provider does not answer")),
        }
    }

    /// Waits for the answer to `question`, `wait` longer than usual.
    pub(crate) async fn answered<T, E, R>(
        &self,
        doing: &str,
        wait: Duration,
        question: impl Future<Output = Result<T, SdkError<E, R>>>,
    ) -> Result<T, QueueError>
    where
        E: ProvideErrorMetadata + Error + 'static,
        R: Debug + 'static,
    {
        match timeout(ANSWER + wait, question).await {
            Ok(answer) => answer.map_err(|error| self.error(doing, &error)),
            Err(_) => Err(self.unreachable(format!("{doing}: no answer within {ANSWER:?}"))),
        }
    }

    /// Translates an SDK error. It is not kept as the source: it holds the request and the answer, which may repeat
    /// credentials.
    fn error<E, R>(&self, doing: &str, error: &SdkError<E, R>) -> QueueError
    where
        E: ProvideErrorMetadata + Error + 'static,
        R: Debug + 'static,
    {
        match error {
            SdkError::ServiceError(told) => {
                let code = told.err().code().unwrap_or("an error without a code");
                self.told(doing, code, told.err().message().unwrap_or_default())
            }
            SdkError::ConstructionFailure(_) => self.refused(format!("{doing}: {}", chain(error))),
            _ if is_about_tls(error) => self.refused(format!(
                "{doing}: no TLS with the service ({}); SSL_CERT_FILE names a file of certificates to trust",
                chain(error)
            )),
            _ => self.unreachable(format!("{doing}: {}", chain(error))),
        }
    }

    /// Translates the service's answer to one message of several.
    pub(crate) fn entry(&self, doing: &str, entry: &BatchResultErrorEntry) -> QueueError {
        self.told(doing, entry.code(), entry.message().unwrap_or_default())
    }

    fn told(&self, doing: &str, code: &str, message: &str) -> QueueError {
        // Amazon's older protocol has a longer form of the same codes.
        let code = code.trim_start_matches("AWS.SimpleQueueService.");
        if is_lost_lease(code, message) {
            return QueueError::LeaseLost;
        }
        if is_transient(code) {
            return self.unreachable(format!("{doing}: {code}: {message}"));
        }
        // These repeat the request, which may have a session token.
        if code.contains("Signature") {
            return self.refused(format!("{doing}: {code}: check the secret access key, the region and the clock"));
        }
        self.refused(format!("{doing}: {code}: {message}"))
    }

    pub(crate) fn unreachable(&self, reason: impl Into<String>) -> QueueError {
        QueueError::unreachable(self.queue.as_str(), reason)
    }

    pub(crate) fn refused(&self, reason: impl Into<String>) -> QueueError {
        QueueError::refused(self.queue.as_str(), reason)
    }
}

/// The TLS library reports an untrusted certificate, or no TLS at all, as invalid data.
fn is_about_tls(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == io::ErrorKind::InvalidData => true,
        // `source` skips the inner error of an `io::Error`.
        Some(error) => error.get_ref().is_some_and(|inner| is_about_tls(inner)),
        None => error.source().is_some_and(is_about_tls),
    }
}

fn is_lost_lease(code: &str, message: &str) -> bool {
    let is_invalid = code == "InvalidParameterValue" && message.contains("receipt handle");
    is_invalid || ["MessageNotInflight", "ReceiptHandleIsInvalid"].contains(&code)
}

fn is_transient(code: &str) -> bool {
    ["Throttl", "Unavailable", "InternalError", "InternalFailure", "OverLimit", "RequestTimeout"]
        .iter()
        .any(|part| code.contains(part))
}

/// An error and its causes in one line, without repetitions.
fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_line = cause.to_string();
        if !line.contains(&cause_line) {
            line = format!("{line}: {cause_line}");
        }
        source = cause.source();
    }
    line
}

/// Returns true if the queue does not exist.
pub(crate) fn is_missing<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    error
        .as_service_error()
        .and_then(ProvideErrorMetadata::code)
        .is_some_and(|code| ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"].contains(&code))
}

async fn config(options: &SqsOptions) -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12()).http_client(http.clone());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &options.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if options.credentials.is_some() || options.profile.is_some() {
        loader = loader.credentials_provider(file_credentials(options, http));
    }
    loader.load().await
}

/// Credentials only from a file; the environment is ignored.
fn file_credentials(options: &SqsOptions, http: SharedHttpClient) -> ProfileFileCredentialsProvider {
    let region = options.region.clone().map(Region::new);
    let config = ProviderConfig::default().with_http_client(http).with_region(region);
    let mut provider = ProfileFileCredentialsProvider::builder().configure(&config);
    if let Some(file) = &options.credentials {
        let files = EnvConfigFiles::builder().with_file(EnvConfigFileKind::Credentials, file).build();
        provider = provider.profile_files(files);
    }
    if let Some(profile) = &options.profile {
        provider = provider.profile_name(profile);
    }
    provider.build()
}
