use std::collections::BTreeMap;
use std::fmt;

/// An entry of a registry: a named way to make something.
pub trait Backend {
    /// Its name on the command line, equal to its cargo feature and its crate's suffix.
    fn name(&self) -> &str;
    /// One line for people.
    fn about(&self) -> &str;
    /// The libraries and devices that it uses on this machine, or the problem that keeps it from working. Never panics,
    /// and is cheap enough to call for every backend.
    fn health(&self) -> Health;
}

/// Implements [`Backend`] and `Debug` for a type with the fields `name`, `about` and `health: fn() -> Health`. The
/// entries of every registry have these fields.
#[macro_export]
macro_rules! named_backend {
    ($backend:ident $(<$parameter:ident>)?) => {
        impl $(<$parameter>)? $crate::Backend for $backend $(<$parameter>)? {
            fn name(&self) -> &str {
                self.name
            }
            fn about(&self) -> &str {
                self.about
            }
            fn health(&self) -> $crate::Health {
                (self.health)()
            }
        }

        impl $(<$parameter>)? ::std::fmt::Debug for $backend $(<$parameter>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($backend)).field("name", &self.name).finish_non_exhaustive()
            }
        }
    };
}

/// Reads settings that only one backend understands, by name, after checking that every name is in `known`.
///
/// # Errors
/// A message that names the unknown setting and lists the known ones.
pub fn known_settings<'a>(
    settings: &'a BTreeMap<String, String>,
    known: &[&str],
) -> Result<&'a BTreeMap<String, String>, String> {
    match settings.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(settings),
        Some(name) if known.is_empty() => Err(format!("unknown setting '{name}': it has no settings")),
        Some(name) => Err(format!("unknown setting '{name}'; it has {}", known.join(", "))),
    }
}

/// A backend's state on this machine: its library, its devices, its problem if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Library that does the work, with its version (`libjpeg-turbo 3.1.0, vendored`), or the processor's instructions;
    /// `None` for pure Rust.
    pub library: Option<String>,
    /// Release of a library that was found at run time and decides the pixels that it makes (`OpenCV 4.10.0`); `None`
    /// where every release makes the same, or the program alone decides.
    pub pixels: Option<String>,
    /// Devices that an encoder can run on (`cpu`, `cuda:0`); empty for the other stages, which run on the CPU.
    pub devices: Vec<String>,
    /// The problem that keeps it from working.
    pub problem: Option<Problem>,
}

impl Health {
    /// A backend in pure Rust, which cannot lack a library.
    pub const fn all_rust() -> Self {
        Self { library: None, pixels: None, devices: Vec::new(), problem: None }
    }

    /// A working backend that uses `library`.
    pub fn library(library: impl Into<String>) -> Self {
        Self { library: Some(library.into()), ..Self::all_rust() }
    }

    /// A backend that does not work on this machine.
    pub fn broken(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: Some(Problem { cause: cause.into(), remedy: remedy.into() }), ..Self::all_rust() }
    }

    /// Adds the release that decides the pixels.
    #[must_use]
    pub fn with_pixels_of(self, release: impl Into<String>) -> Self {
        Self { pixels: Some(release.into()), ..self }
    }

    /// Adds the `devices` that it can run on.
    #[must_use]
    pub fn on(self, devices: impl IntoIterator<Item = String>) -> Self {
        Self { devices: devices.into_iter().collect(), ..self }
    }
}

/// The reason why a backend cannot work on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The cause, in one line.
    pub cause: String,
    /// The remedy, in one line.
    pub remedy: String,
}

/// The backends of one kind that are compiled into a program. It is a value, not a global: the program builds it and
/// passes it on, and another program can add its own backends.
#[derive(Debug)]
pub struct Registry<B> {
    kind: &'static str,
    known: &'static [&'static str],
    entries: Vec<B>,
}

impl<B: Backend> Registry<B> {
    /// An empty registry for a `kind` of backend ("decoder"). `known` lists the names that exist in any build of the
    /// program, so that a backend missing from this build can be told from a misspelt name.
    pub const fn new(kind: &'static str, known: &'static [&'static str]) -> Self {
        Self { kind, known, entries: Vec::new() }
    }

    /// Adds a backend. A second one of the same name is an error, never a silent replacement.
    pub fn register(&mut self, backend: B) -> Result<(), RegistryError> {
        if self.entries.iter().any(|entry| entry.name() == backend.name()) {
            return Err(RegistryError { kind: self.kind, name: backend.name().to_owned() });
        }
        self.entries.push(backend);
        Ok(())
    }

    /// The backend called `name`, or an error that lists what is compiled in.
    pub fn get(&self, name: &str) -> Result<&B, UnknownBackend> {
        self.entries.iter().find(|entry| entry.name() == name).ok_or_else(|| UnknownBackend {
            kind: self.kind,
            name: name.to_owned(),
            compiled: self.entries.iter().map(|entry| entry.name().to_owned()).collect(),
            is_known: self.known.contains(&name),
        })
    }

    /// The compiled backends, in order of registration; the first is the default.
    pub fn iter(&self) -> impl Iterator<Item = &B> {
        self.entries.iter()
    }

    /// The kind of backend that this holds ("decoder").
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Every name that exists in some build, compiled into this one or not.
    pub fn known(&self) -> &'static [&'static str] {
        self.known
    }
}

/// Two backends of one kind have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryError {
    kind: &'static str,
    name: String,
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}' is registered twice", self.kind, self.name)
    }
}

impl std::error::Error for RegistryError {}

/// The requested backend is not compiled into this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend {
    /// Kind of backend ("decoder").
    pub kind: &'static str,
    /// The requested name.
    pub name: String,
    /// The compiled backends' names.
    pub compiled: Vec<String>,
    /// True if another build of the program has it.
    pub is_known: bool,
}

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, .. } = self;
        if self.is_known {
            write!(f, "{kind} '{name}' is not compiled into this build; rebuild with `-F {name}`")?;
        } else {
            write!(f, "there is no {kind} '{name}'")?;
        }
        match self.compiled.as_slice() {
            [] => write!(f, "; no {kind} is compiled in"),
            names => write!(f, "; compiled in: {}", names.join(", ")),
        }
    }
}

impl std::error::Error for UnknownBackend {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Named(&'static str);

    impl Backend for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn about(&self) -> &str {
            "a test backend"
        }
        fn health(&self) -> Health {
            Health::all_rust()
        }
    }

    fn registry() -> Registry<Named> {
        let mut registry = Registry::new("decoder", &["zune", "image", "turbojpeg"]);
        registry.register(Named("zune")).unwrap();
        registry.register(Named("image")).unwrap();
        registry
    }

    #[test]
    fn a_missing_backend_is_told_from_a_misspelt_one() {
        assert_eq!(registry().get("image"), Ok(&Named("image")));
        assert_eq!(
            registry().get("turbojpeg").unwrap_err().to_string(),
            "decoder 'turbojpeg' is not compiled into this build; rebuild with `-F turbojpeg`; compiled in: zune, image"
        );
        assert_eq!(
            registry().get("tubrojpeg").unwrap_err().to_string(),
            "there is no decoder 'tubrojpeg'; compiled in: zune, image"
        );
    }

    #[test]
    fn the_same_name_twice_is_refused() {
        assert_eq!(registry().register(Named("zune")).unwrap_err().to_string(), "decoder 'zune' is registered twice");
    }
}
