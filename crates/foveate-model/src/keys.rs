use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use crate::ModelError;

/// A JSON object whose keys are read one by one, so that every error names its file and key.
pub(crate) struct Keys<'a> {
    path: &'a Path,
    /// The object that these are in, followed by a dot; empty for the file itself.
    within: String,
    map: Map<String, Value>,
}

impl<'a> Keys<'a> {
    /// Parses `json`; `path` is for messages only.
    pub(crate) fn parse(json: &[u8], path: &'a Path) -> Result<Self, ModelError> {
        let value: Value =
            serde_json::from_slice(json).map_err(|e| ModelError::malformed(path, format!("not valid JSON: {e}")))?;
        match value {
            Value::Object(map) => Ok(Self::new(map, path)),
            _ => Err(ModelError::malformed(path, "not a JSON object")),
        }
    }

    /// Wraps keys that were parsed elsewhere.
    pub(crate) fn new(map: Map<String, Value>, path: &'a Path) -> Self {
        Self { path, within: String::new(), map }
    }

    /// The keys of the object `key`; without it there are none.
    pub(crate) fn object(&self, key: &str) -> Result<Self, ModelError> {
        let map = match self.get(key) {
            None => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(value) => return Err(self.error(key, format!("is {value}, not an object"))),
        };
        Ok(Self { path: self.path, within: format!("{}{key}.", self.within), map })
    }

    /// Other keys of the same file.
    pub(crate) fn with(&self, map: Map<String, Value>) -> Self {
        Self { path: self.path, within: self.within.clone(), map }
    }

    /// Refuses any value of `key` but `only`, which is also its default.
    pub(crate) fn only(&self, key: &str, only: bool) -> Result<(), ModelError> {
        match self.flag(key, Some(only))? {
            value if value == only => Ok(()),
            value => Err(self.error(key, format!("is {value}; only {only} is supported"))),
        }
    }

    /// The value of `key`; an explicit `null` counts as absent, as in the Python classes.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn error(&self, key: &str, problem: impl std::fmt::Display) -> ModelError {
        ModelError::malformed(self.path, format!("'{}{key}' {problem}", self.within))
    }

    pub(crate) fn flag(&self, key: &str, default: Option<bool>) -> Result<bool, ModelError> {
        match self.get(key) {
            None => self.or_default(key, default),
            Some(value) => value.as_bool().ok_or_else(|| self.error(key, format!("is {value}, not true or false"))),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.get(key)
            .map(|value| value.as_str().ok_or_else(|| self.error(key, format!("is {value}, not a string"))))
            .transpose()
    }

    pub(crate) fn integer(
        &self,
        key: &str,
        default: Option<usize>,
        range: RangeInclusive<usize>,
    ) -> Result<usize, ModelError> {
        match self.get(key) {
            None => self.or_default(key, default),
            Some(value) => self.to_integer(key, value, range),
        }
    }

    /// Checks that `value`, found under `key`, is an integer in `range`.
    pub(crate) fn to_integer(
        &self,
        key: &str,
        value: &Value,
        range: RangeInclusive<usize>,
    ) -> Result<usize, ModelError> {
        let found = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| range.contains(n));
        found.ok_or_else(|| {
            self.error(key, format!("is {value}, not a whole number from {} to {}", range.start(), range.end()))
        })
    }

    pub(crate) fn number(
        &self,
        key: &str,
        default: Option<f64>,
        range: RangeInclusive<f64>,
    ) -> Result<f64, ModelError> {
        match self.get(key) {
            None => self.or_default(key, default),
            Some(value) => value.as_f64().filter(|x| range.contains(x)).ok_or_else(|| {
                self.error(key, format!("is {value}, not a number from {} to {}", range.start(), range.end()))
            }),
        }
    }

    /// Reads three numbers, one per channel, each accepted by `valid`; `valid_is` describes that in words.
    pub(crate) fn per_channel(
        &self,
        key: &str,
        default: Option<[f64; 3]>,
        valid: impl Fn(f32) -> bool,
        valid_is: &str,
    ) -> Result<[f32; 3], ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(self.or_default(key, default)?.map(|x| x as f32));
        };
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        let numbers: Vec<f32> = list.iter().filter_map(Value::as_f64).map(|x| x as f32).filter(|&x| valid(x)).collect();
        match numbers[..] {
            [r, g, b] if list.len() == 3 => Ok([r, g, b]),
            _ => Err(self.error(key, format!("is {value}, not a list of three {valid_is}"))),
        }
    }

    fn or_default<T>(&self, key: &str, default: Option<T>) -> Result<T, ModelError> {
        default.ok_or_else(|| self.error(key, "is missing and has no default; add it"))
    }
}
