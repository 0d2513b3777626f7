//! CLIP's byte-level BPE from files without rules: vocab.json with merges.txt, and open_clip's list of merges.

use std::io::Read;

use flate2::read::GzDecoder;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

const BEGIN: &str = "<|startoftext|>";
const END: &str = "<|endoftext|>";
const WORDS: &str = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
/// The merges of the published list that belong to the vocabulary; it has five times as many.
const MERGES: usize = 49_152 - 256 - 2;

/// The tokenizer of transformers' older folders: vocab.json and merges.txt.
pub(crate) fn from_vocabulary(vocabulary: &[u8], merges: &[u8]) -> Result<Tokenizer, String> {
    let vocabulary: Vocab = serde_json::from_slice(vocabulary).map_err(|error| error.to_string())?;
    let merges = String::from_utf8_lossy(merges);
    let merges = merges.lines().filter(|line| !line.starts_with("#version")).filter_map(pair).collect();
    tokenizer(vocabulary, merges).map_err(|error| error.to_string())
}

/// The tokenizer of a compressed list of merges. Its vocabulary is the bytes, the bytes that end a word, and what each
/// merge makes, in this order.
pub(crate) fn from_open_clip(compressed: &[u8]) -> Result<Tokenizer, String> {
    let mut text = String::new();
    GzDecoder::new(compressed).read_to_string(&mut text).map_err(|error| error.to_string())?;
    // The first line is the version.
    let merges: Vec<_> = text.lines().skip(1).take(MERGES).filter_map(pair).collect();

    let printable = ('!'..='~').chain('¡'..='¬').chain('®'..='ÿ');
    let mut vocabulary: Vec<String> = printable.map(String::from).collect();
    // Bytes without a visible character have one of those after the first 256.
    vocabulary.extend((0x100..0x100 + 256 - vocabulary.len() as u32).filter_map(char::from_u32).map(String::from));
    for byte in 0..256 {
        vocabulary.push(format!("{}</w>", vocabulary[byte]));
    }
    for (left, right) in &merges {
        vocabulary.push(format!("{left}{right}"));
    }
    vocabulary.extend([BEGIN, END].map(String::from));
    tokenizer(vocabulary.into_iter().zip(0..).collect(), merges).map_err(|error| error.to_string())
}

fn pair(line: &str) -> Option<(String, String)> {
    let (left, right) = line.split_once(' ')?;
    Some((left.to_owned(), right.to_owned()))
}

/// The rules of transformers' `CLIPTokenizer`.
fn tokenizer(vocabulary: Vocab, merges: Merges) -> tokenizers::Result<Tokenizer> {
    let model = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .unk_token(END.to_owned())
        .continuing_subword_prefix(String::new())
        .end_of_word_suffix("</w>".to_owned())
        .build()?;
    let mut tokenizer = Tokenizer::new(model);
    let spaces = Replace::new(ReplacePattern::Regex(r"\s+".to_owned()), " ")?;
    tokenizer.with_normalizer(Some(Normalizers::new(vec![NFC.into(), spaces.into(), Lowercase.into()])))?;
    let words = Split::new(SplitPattern::Regex(WORDS.to_owned()), SplitDelimiterBehavior::Removed, true)?;
    let bytes = ByteLevel::new(false, true, true);
    tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(vec![words.into(), bytes.into()])));
    tokenizer.add_special_tokens([BEGIN, END].map(|token| AddedToken::from(token, true)))?;
    Ok(tokenizer)
}
