//! `POST /v1/similar`: what a request searches for besides images, and what is found.

use std::collections::BTreeMap;

use foveate_worker::{Failure, Outcome, Output, Stage};
use serde::de::Error;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::{Index, IndexFilter};
use crate::problem::ApiProblem;

/// Results of a query if the request does not say how many.
pub(crate) const USUAL_K: usize = 10;
/// Most results of a query.
pub(crate) const MOST_K: usize = 1000;
/// Most results that are passed over. Memory is taken for these, too, for each query and each thread.
pub(crate) const MOST_OFFSET: usize = 9000;
/// Bytes of a row and its score while rows are compared.
const HIT_BYTES: usize = 16;
/// Bytes of a result while an answer is written, with an id of 100 bytes: as values, as text, and in the body.
const RESULT_BYTES: usize = 1280;
/// Most bytes of a field, which takes up to 16 times as many when it is parsed.
const MOST_TEXT: usize = 4 << 20;
/// Examples whose difference is shorter point nowhere.
const LEAST_LENGTH: f64 = 1e-6;

/// The fields of a request that searches.
#[derive(Debug, Default)]
pub(crate) struct SimilarFields {
    /// Numbers of a vector.
    dim: usize,
    k: Option<usize>,
    offset: Option<usize>,
    /// `k` and `offset` of the address.
    in_address: [Option<usize>; 2],
    ids: Vec<Example>,
    vectors: Vec<Example>,
    positive: Vec<Example>,
    negative: Vec<Example>,
    filter: IndexFilter,
}

#[derive(Debug)]
enum Example {
    Row(String),
    Vector(Vec<f32>),
}

/// A vector to search for, and rows that are not its neighbours.
struct IndexQuery {
    vector: Vec<f32>,
    without: Vec<u32>,
}

impl SimilarFields {
    /// Reads the query of an address, for images that are the whole body.
    pub(crate) fn of_query(query: &str, dim: usize) -> Result<Self, ApiProblem> {
        let mut fields = Self { dim, ..Self::default() };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
            if !["k", "offset"].contains(&name) || !is_number || fields.read(name, value).is_err() {
                let detail = format!("the query may be k=N, from 1 to {MOST_K}, and offset=N, up to {MOST_OFFSET}");
                return Err(ApiProblem::malformed(detail));
            }
        }
        fields.in_address = [fields.k.take(), fields.offset.take()];
        Ok(fields)
    }

    /// Takes what the address says for what the body leaves out.
    pub(crate) fn settle(&mut self) -> Result<(), ApiProblem> {
        let [k, offset] = self.in_address;
        for (name, field, in_address) in [("k", &mut self.k, k), ("offset", &mut self.offset, offset)] {
            if field.zip(in_address).is_some_and(|(one, other)| one != other) {
                let detail = format!("{name} is one number in the address and another in the body");
                return Err(ApiProblem::impossible(detail, "give it once"));
            }
            *field = field.or(in_address);
        }
        Ok(())
    }

    /// Sets the field of this name to a value in JSON. Returns false if there is no such field.
    pub(crate) fn read(&mut self, name: &str, json: &str) -> Result<bool, serde_json::Error> {
        match name {
            "k" => self.k = number(json, 1, MOST_K)?,
            "offset" => self.offset = number(json, 0, MOST_OFFSET)?,
            "id" | "ids" | "vector" | "positive" | "negative" | "filter" if json == "null" => {}
            "id" | "ids" | "vector" | "positive" | "negative" | "filter" if json.len() > MOST_TEXT => {
                return Err(Error::custom(format_args!("more than {MOST_TEXT} bytes")));
            }
            // It comes before `ids`, wherever it stands.
            "id" => self.ids.insert(0, Example::Row(serde_json::from_str(json)?)),
            "ids" => self.ids.extend(serde_json::from_str::<Vec<String>>(json)?.into_iter().map(Example::Row)),
            "vector" => self.vectors = self.examples(json, false)?,
            "positive" => self.positive = self.examples(json, true)?,
            "negative" => self.negative = self.examples(json, true)?,
            "filter" => {
                for (column, value) in serde_json::from_str::<BTreeMap<String, Value>>(json)? {
                    let values = if let Value::Array(values) = value { values } else { vec![value] };
                    self.filter.insert(column, values.into_iter().map(text_of).collect::<Result<_, _>>()?);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads one example, or a list of them. A list of numbers is one vector.
    fn examples(&self, json: &str, may_be_ids: bool) -> Result<Vec<Example>, serde_json::Error> {
        let first = json.strip_prefix('[').and_then(|rest| rest.trim_start().chars().next());
        let texts: Vec<&RawValue> = match first {
            Some(first) if first != '-' && !first.is_ascii_digit() => serde_json::from_str(json)?,
            _ => vec![serde_json::from_str(json)?],
        };
        let mut examples = Vec::with_capacity(texts.len());
        for text in texts {
            if may_be_ids && text.get().starts_with('"') {
                examples.push(Example::Row(serde_json::from_str(text.get())?));
                continue;
            }
            // As f64, because which numbers f32 takes depends on serde_json's features.
            let numbers: Vec<f64> = serde_json::from_str(text.get())?;
            let vector: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
            if vector.len() != self.dim {
                let reason = format!("a vector of {} numbers; those of the index have {}", vector.len(), self.dim);
                return Err(Error::custom(reason));
            }
            if !vector.iter().all(|number| number.is_finite()) {
                return Err(Error::custom("a number that is too large for f32"));
            }
            examples.push(Example::Vector(vector));
        }
        Ok(examples)
    }

    /// Vectors that queries are made of, besides images and texts.
    pub(crate) fn size(&self) -> usize {
        self.ids.len() + self.vectors.len() + self.positive.len() + self.negative.len()
    }

    /// Queries, `images` of which are of images and texts.
    pub(crate) fn queries(&self, images: usize) -> usize {
        let has_examples = !self.positive.is_empty() || !self.negative.is_empty();
        images + self.ids.len() + self.vectors.len() + usize::from(has_examples)
    }

    /// Bytes of the results of this many queries: on each core, on all of them, as the index returns them, and in the
    /// answer.
    pub(crate) fn memory(&self, queries: usize) -> u64 {
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        let k = self.k.unwrap_or(USUAL_K);
        let hits = k + self.offset.unwrap_or(0) + self.positive.len() + self.negative.len() + 1;
        (queries * (hits * HIT_BYTES * (cores + 2) + k * RESULT_BYTES)) as u64
    }

    /// Finds what is most like each query: images and texts, of which these are the outcomes, then ids, vectors, and at
    /// last the examples together.
    pub(crate) fn search(&self, index: &dyn Index, images: Vec<Outcome>) -> Result<Vec<Outcome>, ApiProblem> {
        if let Some(column) = self.filter.keys().find(|column| !index.columns().contains(column)) {
            let known = index.columns().join("', '");
            let known = if known.is_empty() { "has none".to_owned() } else { format!("has '{known}'") };
            let remedy = "filter by a column that it has; `embed --columns` and `merge --join` add columns";
            return Err(ApiProblem::impossible(format!("the index has no column '{column:.100}'; it {known}"), remedy));
        }
        let mut queries: Vec<Result<IndexQuery, Failure>> = Vec::new();
        for image in images {
            queries.push(match image {
                Ok(Output::Vector(embedding)) => Ok(IndexQuery { vector: embedding.vector, without: Vec::new() }),
                Ok(_) => Err(failure("the task makes no vector of it")),
                Err(failure) => Err(failure),
            });
        }
        for example in self.ids.iter().chain(&self.vectors) {
            queries.push(example.query(index));
        }
        if !self.positive.is_empty() || !self.negative.is_empty() {
            queries.push(self.query_of_examples(index));
        }
        let vectors: Vec<&[f32]> = queries.iter().flatten().map(|query| &*query.vector).collect();
        let without = queries.iter().flatten().map(|query| query.without.len()).max().unwrap_or(0);
        let k = self.k.unwrap_or(USUAL_K);
        let offset = self.offset.unwrap_or(0);
        let found = index.nearest(&vectors, k + offset + without, &self.filter);
        let mut found = found.map_err(|error| ApiProblem::unavailable(error, "try again later"))?.into_iter();
        let mut answers = Vec::with_capacity(queries.len());
        for query in queries {
            answers.push(query.map(|query| {
                let rows = found.next().unwrap_or_default().into_iter();
                let others = rows.filter(|(row, _)| !query.without.contains(row)).skip(offset).take(k);
                Output::Json(others.map(|(row, score)| json!({"id": index.id(row), "score": score})).collect())
            }));
        }
        Ok(answers)
    }

    /// The mean of the positive examples less that of the negative ones, each of length 1.
    fn query_of_examples(&self, index: &dyn Index) -> Result<IndexQuery, Failure> {
        let mut sums = vec![0.0; self.dim];
        let mut without = Vec::new();
        for (examples, sign) in [(&self.positive, 1.0), (&self.negative, -1.0)] {
            for example in examples {
                let query = example.query(index)?;
                let weight = sign / (examples.len() as f64 * length(query.vector.iter().map(|&x| f64::from(x))));
                // A vector of zeros has no direction.
                if weight.is_finite() {
                    sums.iter_mut().zip(&query.vector).for_each(|(sum, &x)| *sum += weight * f64::from(x));
                }
                without.extend(query.without);
            }
        }
        let length = length(sums.iter().copied());
        if length < LEAST_LENGTH {
            return Err(failure("the positive and negative examples cancel each other out; leave some of them out"));
        }
        Ok(IndexQuery { vector: sums.iter().map(|sum| (sum / length) as f32).collect(), without })
    }
}

impl Example {
    fn query(&self, index: &dyn Index) -> Result<IndexQuery, Failure> {
        let id = match self {
            Self::Vector(vector) => return Ok(IndexQuery { vector: vector.clone(), without: Vec::new() }),
            Self::Row(id) => id,
        };
        let row = index.row(id).map_err(failure)?;
        let vector = index.vector(row).to_vec();
        match vector.iter().all(|x| x.is_finite()) {
            true => Ok(IndexQuery { vector, without: vec![row] }),
            false => Err(failure(format!("the vector of '{id}' is not finite; embed its image again"))),
        }
    }
}

/// A failure of the index, which retries repeat.
fn failure(reason: impl Into<String>) -> Failure {
    Failure::permanent(Stage::Within("index"), reason)
}

fn length(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|x| x * x).sum::<f64>().sqrt()
}

/// The text of a value in a column, of which text is all that columns have.
fn text_of(value: Value) -> Result<Option<String>, serde_json::Error> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(_) | Value::Bool(_) => Ok(Some(value.to_string())),
        _ => Err(Error::custom("a value is a text, a number, true, false or null")),
    }
}

fn number(json: &str, least: usize, most: usize) -> Result<Option<usize>, serde_json::Error> {
    match serde_json::from_str::<Option<usize>>(json)? {
        Some(number) if !(least..=most).contains(&number) => {
            Err(Error::custom(format_args!("{number}; it may be {least} to {most}")))
        }
        number => Ok(number),
    }
}
