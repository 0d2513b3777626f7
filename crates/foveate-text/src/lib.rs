#![doc = include_str!("../README.md")]

mod clean;
mod clip;
mod sentencepiece;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

pub use clean::TextCleaning;
use sentencepiece::Charsmap;
use serde_json::Value;
use tokenizers::normalizers::{Lowercase, Sequence};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{PaddingParams, PaddingStrategy, Tokenizer, TruncationParams};

/// What a family's library does with a text before and after the tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRules {
    /// The tokens that the model takes: longer texts are cut, shorter ones padded.
    pub context: usize,
    /// What happens to a text before the tokenizer.
    pub cleaning: TextCleaning,
    /// Lower case before the tokenizer, unless tokenizer_config.json has a `do_lower_case` of `false`.
    pub lower_case: bool,
    /// The token before every text, for files that do not say it.
    pub begin: Option<&'static str>,
    /// The token after every text, for files that do not say it.
    pub end: Option<&'static str>,
    /// What stands after a text that is shorter than the context.
    pub padding: TextPadding,
}

/// What stands after a text that is shorter than the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPadding {
    /// The `pad_token` of tokenizer_config.json; this token, if the file has none.
    Token(&'static str),
    /// Always this id.
    Id(u32),
}

impl TextRules {
    /// CLIP in transformers.
    pub const fn clip(context: usize) -> Self {
        Self {
            context,
            cleaning: TextCleaning::Untouched,
            lower_case: false,
            begin: Some("<|startoftext|>"),
            end: Some("<|endoftext|>"),
            padding: TextPadding::Token("<|endoftext|>"),
        }
    }

    /// CLIP and PE-Core in open_clip.
    pub const fn open_clip(context: usize) -> Self {
        Self { cleaning: TextCleaning::OpenClip, lower_case: true, padding: TextPadding::Id(0), ..Self::clip(context) }
    }

    /// SigLIP in transformers.
    pub const fn siglip(context: usize) -> Self {
        Self {
            context,
            cleaning: TextCleaning::Canonical,
            lower_case: true,
            begin: None,
            end: Some("</s>"),
            padding: TextPadding::Token("</s>"),
        }
    }

    /// SigLIP2 in transformers.
    pub const fn siglip2(context: usize) -> Self {
        Self {
            cleaning: TextCleaning::Untouched,
            end: Some("<eos>"),
            padding: TextPadding::Token("<pad>"),
            ..Self::siglip(context)
        }
    }

    /// These rules as open_clip has them for the SigLIP and SigLIP2 models that it publishes.
    pub const fn in_open_clip(self) -> Self {
        Self { cleaning: TextCleaning::OpenClipCanonical, lower_case: true, ..self }
    }

    /// TIPSv2 in transformers.
    pub const fn tips(context: usize) -> Self {
        Self { end: None, ..Self::siglip2(context) }
    }
}

/// A model's tokenizer with its family's rules.
#[derive(Debug, Clone)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    charsmap: Option<Charsmap>,
    cleaning: TextCleaning,
    lower_case: bool,
}

/// A text as the model takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIds {
    /// As many ids as the context has tokens.
    pub ids: Vec<u32>,
    /// The ids before the padding: the ones of an attention mask.
    pub real: usize,
    /// The text was longer than the context; its end is not in the ids.
    pub truncated: bool,
}

/// A tokenizer that cannot be opened, or a text that it does not take.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// None of the known files is there.
    #[error(
        "this model has no tokenizer: {} has no tokenizer.json, spiece.model, tokenizer.model, vocab.json with \
         merges.txt, or bpe_simple_vocab_16e6.txt.gz; copy one of them from where the model was published",
        .0.display()
    )]
    NoTokenizer(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        cause: std::io::Error,
    },
    /// A file is not what its name says, or lacks what the family's rules need.
    #[error("{}: {problem}; fetch the file again from where the model was published", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which part of it is wrong.
        problem: String,
    },
    /// The context has no room for a text.
    #[error("a context of {0} tokens has no room for a text between the begin and end tokens: read the model's config")]
    Context(usize),
    /// The tokenizer does not take this text.
    #[error("the tokenizer does not take the text: {0}")]
    Text(String),
}

impl TextTokenizer {
    /// Opens the tokenizer in a model's folder: tokenizer.json, a SentencePiece model, or CLIP's vocabulary.
    pub fn open(folder: &Path, rules: TextRules) -> Result<Self, TextError> {
        if rules.context < 3 {
            return Err(TextError::Context(rules.context));
        }
        let TokenizerFile { path, mut tokenizer, charsmap } = TokenizerFile::find(folder)?;
        if tokenizer.get_post_processor().is_none() {
            let mut affixes = Vec::new();
            for token in [rules.begin, rules.end].into_iter().flatten() {
                affixes.push((token, id_of(token, &tokenizer, &path)?));
            }
            let template = format!("{} $A {}", rules.begin.unwrap_or_default(), rules.end.unwrap_or_default());
            let template = TemplateProcessing::builder()
                .try_single(template.trim())
                .map_err(|problem| malformed(&path, problem))?
                .special_tokens(affixes)
                .build()
                .map_err(|error| malformed(&path, error.to_string()))?;
            tokenizer.with_post_processor(Some(template));
        }

        let config = folder.join("tokenizer_config.json");
        let config = if config.is_file() { json(&config)? } else { Value::Null };
        let lower_case = rules.lower_case && config["do_lower_case"] != false;
        if lower_case && rules.cleaning == TextCleaning::Untouched {
            let mut steps = vec![Lowercase.into()];
            steps.extend(tokenizer.get_normalizer().cloned());
            tokenizer
                .with_normalizer(Some(Sequence::new(steps)))
                .map_err(|error| malformed(&path, format!("its normalizer: {error}")))?;
        }

        let pad_id = match rules.padding {
            TextPadding::Id(id) => id,
            TextPadding::Token(token) => {
                // Older files have the token's properties beside its text.
                let named = config["pad_token"].as_str().or(config["pad_token"]["content"].as_str());
                id_of(named.unwrap_or(token), &tokenizer, &path)?
            }
        };
        tokenizer.with_padding(Some(PaddingParams {
            strategy: PaddingStrategy::Fixed(rules.context),
            pad_id,
            ..PaddingParams::default()
        }));
        let truncation = TruncationParams { max_length: rules.context, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(|_| TextError::Context(rules.context))?;
        Ok(Self { tokenizer, charsmap, cleaning: rules.cleaning, lower_case })
    }

    /// The ids that the family's library gives to the model for this text.
    ///
    /// A text that is too long loses its end, but not the end token. An empty text has the begin and end tokens alone.
    pub fn encode(&self, text: &str) -> Result<TokenIds, TextError> {
        let mut text = clean::clean(text, self.cleaning, self.lower_case);
        if let Some(charsmap) = &self.charsmap {
            text = Cow::Owned(charsmap.replace(&text));
        }
        let encoding = self.tokenizer.encode_fast(text, true).map_err(|error| TextError::Text(error.to_string()))?;
        Ok(TokenIds {
            ids: encoding.get_ids().to_vec(),
            real: encoding.get_attention_mask().iter().filter(|&&real| real == 1).count(),
            truncated: !encoding.get_overflowing().is_empty(),
        })
    }
}

/// A tokenizer as it is in a file.
struct TokenizerFile {
    path: PathBuf,
    tokenizer: Tokenizer,
    charsmap: Option<Charsmap>,
}

impl TokenizerFile {
    /// Reads the first of the known files in a folder. transformers reads spiece.model, SigLIP's, before all others.
    fn find(folder: &Path) -> Result<Self, TextError> {
        let names = [
            "spiece.model",
            "tokenizer.json",
            "tokenizer.model",
            "vocab.json",
            "bpe_simple_vocab.txt.gz",
            "bpe_simple_vocab_16e6.txt.gz",
        ];
        for name in names {
            let path = folder.join(name);
            let merges = folder.join("merges.txt");
            if !path.is_file() || (name == "vocab.json" && !merges.is_file()) {
                continue;
            }
            let mut charsmap = None;
            let tokenizer = match name {
                "tokenizer.json" => Tokenizer::from_bytes(read(&path)?).map_err(|error| error.to_string()),
                "vocab.json" => clip::from_vocabulary(&read(&path)?, &read(&merges)?),
                name if name.ends_with(".gz") => clip::from_open_clip(&read(&path)?),
                _ => sentencepiece::open(&read(&path)?).map(|(tokenizer, replacements)| {
                    charsmap = replacements;
                    tokenizer
                }),
            };
            let tokenizer = tokenizer.map_err(|problem| malformed(&path, problem))?;
            return Ok(Self { path, tokenizer, charsmap });
        }
        Err(TextError::NoTokenizer(folder.to_owned()))
    }
}

fn id_of(token: &str, tokenizer: &Tokenizer, path: &Path) -> Result<u32, TextError> {
    tokenizer.token_to_id(token).ok_or_else(|| malformed(path, format!("its vocabulary has no token '{token}'")))
}

fn read(path: &Path) -> Result<Vec<u8>, TextError> {
    fs::read(path).map_err(|cause| TextError::Unreadable { path: path.to_owned(), cause })
}

fn json(path: &Path) -> Result<Value, TextError> {
    serde_json::from_slice(&read(path)?).map_err(|error| malformed(path, error.to_string()))
}

fn malformed(path: &Path, problem: String) -> TextError {
    TextError::Malformed { path: path.to_owned(), problem }
}
