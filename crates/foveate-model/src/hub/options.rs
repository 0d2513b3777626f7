use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Access to the Hugging Face hub and the cache of its files: the environment variables of Hugging Face's own
/// libraries, read in one place.
#[derive(Clone, Debug)]
pub struct HubOptions {
    /// Address of the hub or of a mirror, without a trailing slash (`HF_ENDPOINT`).
    pub endpoint: String,
    /// The cache that all Hugging Face libraries share (`HF_HUB_CACHE`, or `hub` in `HF_HOME`).
    pub cache: PathBuf,
    /// Sent to the endpoint and to no other host (`HF_TOKEN`, or the file that `hf auth login` writes).
    pub token: Option<Token>,
    /// Use the cache alone (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// PEM file with the certificates to trust instead of the built-in ones (`REQUESTS_CA_BUNDLE`, `SSL_CERT_FILE`).
    pub ca_bundle: Option<PathBuf>,
    /// Use the proxy that `ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` describe, if any.
    pub proxy_from_env: bool,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Timeout between two reads of a response.
    pub read_timeout: Duration,
    /// The most attempts without progress.
    pub attempts: u32,
    /// Backoff before the second attempt; it grows with each.
    pub backoff: Duration,
}

/// A secret, hidden in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Wraps a token. Surrounding white space is dropped; a text of white space alone is no token.
    pub fn new(secret: &str) -> Option<Self> {
        let secret = secret.trim();
        (!secret.is_empty()).then(|| Self(secret.to_owned()))
    }

    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl HubOptions {
    /// Reads the process's environment.
    pub fn from_env() -> Self {
        Self { proxy_from_env: true, ..Self::from_vars(|name| std::env::var_os(name)) }
    }

    /// Reads the variables through `var`, without a proxy. Empty ones count as unset.
    pub fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Self {
        let vars = Vars { var: &var };
        let home = vars.hf_home();
        let cache = vars.path("HF_HUB_CACHE").or_else(|| vars.path("HUGGINGFACE_HUB_CACHE"));
        Self {
            endpoint: vars
                .text("HF_ENDPOINT")
                .map_or_else(|| "https://huggingface.co".to_owned(), |url| url.trim_end_matches('/').to_owned()),
            cache: cache.unwrap_or_else(|| home.join("hub")),
            token: vars.token(&home),
            offline: vars.flag("HF_HUB_OFFLINE") || vars.flag("TRANSFORMERS_OFFLINE"),
            ca_bundle: vars.path("REQUESTS_CA_BUNDLE").or_else(|| vars.path("SSL_CERT_FILE")),
            proxy_from_env: false,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(60),
            attempts: 4,
            backoff: Duration::from_secs(1),
        }
    }
}

struct Vars<'a> {
    var: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Vars<'_> {
    fn get(&self, name: &str) -> Option<OsString> {
        (self.var)(name).filter(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(|value| value.into_string().ok())
    }

    /// Returns true if the variable is one of `huggingface_hub`'s true values.
    fn flag(&self, name: &str) -> bool {
        self.text(name).is_some_and(|value| matches!(value.to_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE"))
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.get(name)?);
        Some(match path.strip_prefix("~") {
            Ok(rest) => self.user_home().join(rest),
            Err(_) => path,
        })
    }

    fn user_home(&self) -> PathBuf {
        self.get("HOME").map(PathBuf::from).or_else(std::env::home_dir).unwrap_or_default()
    }

    fn hf_home(&self) -> PathBuf {
        if let Some(home) = self.path("HF_HOME") {
            return home;
        }
        let cache = self.path("XDG_CACHE_HOME").unwrap_or_else(|| self.user_home().join(".cache"));
        cache.join("huggingface")
    }

    fn token(&self, hf_home: &Path) -> Option<Token> {
        if self.flag("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            return None;
        }
        let named = self.text("HF_TOKEN").or_else(|| self.text("HUGGING_FACE_HUB_TOKEN"));
        if let Some(token) = named {
            return Token::new(&token);
        }
        let file = self.path("HF_TOKEN_PATH").unwrap_or_else(|| hf_home.join("token"));
        Token::new(&std::fs::read_to_string(file).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(vars: &[(&str, &str)]) -> HubOptions {
        HubOptions::from_vars(|name| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
    }

    #[test]
    fn without_variables_everything_is_where_python_puts_it() {
        let options = options(&[("HOME", "/home/ann")]);
        assert_eq!(options.endpoint, "https://huggingface.co");
        assert_eq!(options.cache, Path::new("/home/ann/.cache/huggingface/hub"));
        assert!(!options.offline && options.token.is_none() && options.ca_bundle.is_none());
    }

    #[test]
    fn the_cache_is_named_by_the_most_specific_variable() {
        let cache = |vars: &[(&str, &str)]| options(vars).cache;
        assert_eq!(cache(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Path::new("/x/huggingface/hub"));
        assert_eq!(cache(&[("HF_HOME", "/hf"), ("XDG_CACHE_HOME", "/x")]), Path::new("/hf/hub"));
        assert_eq!(cache(&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")]), Path::new("/c"));
        assert_eq!(cache(&[("HOME", "/h"), ("HF_HOME", "~/models")]), Path::new("/h/models/hub"));
        assert_eq!(cache(&[("HOME", "/h"), ("HF_HOME", "")]), Path::new("/h/.cache/huggingface/hub"));
    }

    #[test]
    fn a_token_comes_from_its_variable_or_its_file_and_stays_secret() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "hf_stored\n").unwrap();
        let hf_home = ("HF_HOME", home.path().to_str().unwrap());
        assert_eq!(options(&[hf_home]).token, Token::new("hf_stored"));
        assert_eq!(options(&[hf_home, ("HF_TOKEN", "hf_named")]).token, Token::new("hf_named"));
        assert_eq!(options(&[hf_home, ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]).token, None);
        assert!(!format!("{:?}", options(&[hf_home])).contains("hf_stored"));
    }

    #[test]
    fn switches_and_addresses_are_read_as_python_reads_them() {
        for (value, offline) in [("1", true), ("true", true), ("ON", true), ("0", false), ("", false), ("no", false)] {
            assert_eq!(options(&[("HF_HUB_OFFLINE", value)]).offline, offline, "{value:?}");
        }
        assert_eq!(options(&[("HF_ENDPOINT", "https://mirror.example/hf/")]).endpoint, "https://mirror.example/hf");
    }
}
