//! SentencePiece's models: a protobuf message with the pieces and the rules of normalization.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Precompiled, Replace, Sequence as Normalizers, Strip};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{AddedToken, ModelWrapper, Tokenizer};

/// The `model_type` of BPE; unigram is 1.
const BPE_MODEL: u64 = 2;

/// What foveate reads of a SentencePiece model. The numbers beside are those of sentencepiece_model.proto.
struct PieceModel {
    /// 1: the pieces.
    pieces: Vec<VocabularyPiece>,
    /// 2.3: unigram or BPE.
    model_type: u64,
    /// 2.35: pieces for the bytes of what the vocabulary lacks.
    byte_fallback: bool,
    /// 2.40: the id of what the vocabulary lacks.
    unknown: usize,
    /// 3.2: a trie of replacements.
    charsmap: Vec<u8>,
    /// 3.3 to 3.5: add_dummy_prefix, remove_extra_whitespaces and escape_whitespaces, which are on by default.
    usual_spaces: bool,
}

struct VocabularyPiece {
    text: String,
    score: f32,
    /// 1 is a normal piece, 2 the unknown one, 3 for control, 4 defined by the user, 6 a byte.
    role: u64,
}

/// The tokenizer of a model file, and the replacements before it where they are not the tokenizer's.
pub(crate) fn open(file: &[u8]) -> Result<(Tokenizer, Option<Charsmap>), String> {
    let model = PieceModel::parse(file).ok_or("it is no SentencePiece model, or cut short")?;
    if !model.usual_spaces {
        return Err("foveate needs add_dummy_prefix, remove_extra_whitespaces and escape_whitespaces".to_owned());
    }
    let tokenizer = model.tokenizer().map_err(|error| error.to_string())?;
    if model.charsmap.is_empty() || model.model_type == BPE_MODEL {
        return Ok((tokenizer, None));
    }
    let charsmap = Charsmap::parse(&model.charsmap).ok_or("its precompiled_charsmap is malformed")?;
    Ok((tokenizer, Some(charsmap)))
}

impl PieceModel {
    fn parse(file: &[u8]) -> Option<Self> {
        let mut model = Self {
            pieces: Vec::new(),
            model_type: 1,
            byte_fallback: false,
            unknown: 0,
            charsmap: Vec::new(),
            usual_spaces: true,
        };
        for field in ProtoField::all(file)? {
            match field.number {
                1 => model.pieces.push(VocabularyPiece::parse(field.bytes)?),
                2 | 3 => {}
                _ => continue,
            }
            for inner in ProtoField::all(field.bytes)? {
                match (field.number, inner.number) {
                    (2, 3) => model.model_type = inner.value,
                    (2, 35) => model.byte_fallback = inner.value != 0,
                    (2, 40) => model.unknown = inner.value as usize,
                    (3, 2) => model.charsmap = inner.bytes.to_vec(),
                    (3, 3..=5) => model.usual_spaces &= inner.value != 0,
                    _ => {}
                }
            }
        }
        (!model.pieces.is_empty()).then_some(model)
    }

    fn tokenizer(&self) -> tokenizers::Result<Tokenizer> {
        let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
        let metaspace = Metaspace::new('▁', PrependScheme::Always, true);
        let mut tokenizer = if self.model_type == BPE_MODEL {
            if !self.charsmap.is_empty() {
                normalizers.push(Precompiled::from(&self.charsmap)?.into());
            }
            let mut tokenizer = Tokenizer::new(ModelWrapper::from(self.bpe()?));
            tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(vec![WhitespaceSplit.into(), metaspace.into()])));
            tokenizer
        } else {
            let pieces = self.pieces.iter().map(|piece| (piece.text.clone(), f64::from(piece.score))).collect();
            let model = Unigram::from(pieces, Some(self.unknown), self.byte_fallback)?;
            normalizers.push(Replace::new(ReplacePattern::Regex(" {2,}".to_owned()), " ")?.into());
            normalizers.push(Strip::new(true, true).into());
            let mut tokenizer = Tokenizer::new(ModelWrapper::from(model));
            tokenizer.with_pre_tokenizer(Some(PreTokenizerWrapper::from(metaspace)));
            tokenizer
        };
        tokenizer.with_normalizer(Some(Normalizers::new(normalizers)))?;
        // As in transformers, a text that has these as they are has their ids.
        for piece in &self.pieces {
            match piece.role {
                2 | 3 => tokenizer.add_special_tokens([AddedToken::from(piece.text.clone(), true)])?,
                4 => tokenizer.add_tokens([AddedToken::from(piece.text.clone(), false).normalized(false)])?,
                _ => 0,
            };
        }
        Ok(tokenizer)
    }

    /// BPE as transformers derives it: every piece is the merge of any two others, the earlier piece first.
    fn bpe(&self) -> tokenizers::Result<BPE> {
        let mut ids = Vocab::new();
        for (piece, id) in self.pieces.iter().zip(0_u32..) {
            ids.insert(piece.text.clone(), id);
        }
        let mut merges = Vec::new();
        for piece in &self.pieces {
            for (at, _) in piece.text.char_indices().skip(1) {
                let (left, right) = piece.text.split_at(at);
                if ids.contains_key(left) && ids.contains_key(right) {
                    merges.push((left.to_owned(), right.to_owned()));
                }
            }
        }
        BPE::builder().vocab_and_merges(ids, merges).fuse_unk(true).byte_fallback(true).build()
    }
}

impl VocabularyPiece {
    fn parse(message: &[u8]) -> Option<Self> {
        let mut piece = Self { text: String::new(), score: 0.0, role: 1 };
        for field in ProtoField::all(message)? {
            match field.number {
                1 => piece.text = str::from_utf8(field.bytes).ok()?.to_owned(),
                2 => piece.score = f32::from_bits(field.value as u32),
                3 => piece.role = field.value,
                _ => {}
            }
        }
        Some(piece)
    }
}

/// SentencePiece's replacements: a trie of bytes as a double array, whose leaves are offsets of texts that end in NUL.
///
/// The longest match counts, as in SentencePiece, which transformers uses for SigLIP. For TIPSv2 it uses tokenizers,
/// whose own reader of this format takes the shortest.
#[derive(Debug, Clone)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    texts: String,
}

impl Charsmap {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (trie, texts) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let units = trie.as_chunks().0.iter().map(|&unit| u32::from_le_bytes(unit)).collect();
        Some(Self { units, texts: str::from_utf8(texts).ok()?.to_owned() })
    }

    pub(crate) fn replace(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let replacement = self.longest(rest.as_bytes());
            match replacement.and_then(|(length, text)| Some((rest.get(length..)?, text))) {
                Some((after, text)) => {
                    out += text;
                    rest = after;
                }
                None => {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        out
    }

    /// The longest prefix of the text that is in the trie: its length and its replacement.
    fn longest(&self, text: &[u8]) -> Option<(usize, &str)> {
        let mut found = None;
        let mut node = children(*self.units.first()?);
        for (&byte, length) in text.iter().zip(1..) {
            node ^= usize::from(byte);
            let Some(&unit) = self.units.get(node) else { break };
            if unit & 0x8000_00FF != u32::from(byte) {
                break;
            }
            node ^= children(unit);
            if unit & 0x100 != 0 {
                found = Some((length, self.units.get(node)? & 0x7FFF_FFFF));
            }
        }
        let (length, start) = found?;
        Some((length, self.texts.get(start as usize..)?.split('\0').next()?))
    }
}

/// The distance from a unit of the double array to its children, in the format of darts-clone.
fn children(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 0x200) >> 6)) as usize
}

/// A field of a protobuf message.
struct ProtoField<'a> {
    number: u64,
    /// The value of a number, as bits.
    value: u64,
    /// The value of a text or a message.
    bytes: &'a [u8],
}

impl<'a> ProtoField<'a> {
    /// The fields of a message; `None` if it is malformed.
    fn all(mut message: &'a [u8]) -> Option<Vec<Self>> {
        let mut fields = Vec::new();
        while !message.is_empty() {
            let tag = varint(&mut message)?;
            let mut field = Self { number: tag >> 3, value: 0, bytes: &[] };
            match tag & 7 {
                0 => field.value = varint(&mut message)?,
                1 => field.value = u64::from_le_bytes(*message.split_off(..8)?.first_chunk()?),
                2 => {
                    let length = usize::try_from(varint(&mut message)?).ok()?;
                    field.bytes = message.split_off(..length)?;
                }
                5 => field.value = u64::from(u32::from_le_bytes(*message.split_off(..4)?.first_chunk()?)),
                _ => return None,
            }
            fields.push(field);
        }
        Some(fields)
    }
}

/// Seven bits a byte, the lowest first; the highest bit says that there are more.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_replacement_counts() {
        let mut units = vec![0_u32; 0x400];
        units[0] = 0x100 << 10;
        // `a` has the leaf 0, and the child `b`, which has the leaf 2.
        units[0x100 ^ 0x61] = (0x161 ^ 0x200) << 10 | 0x100 | 0x61;
        units[0x200 ^ 0x62] = (0x262 ^ 0x300) << 10 | 0x100 | 0x62;
        units[0x300] = 2;
        let charsmap = Charsmap { units, texts: "x\0yy\0".to_owned() };
        assert_eq!(charsmap.replace("abac éa"), "yyxc éx");
    }
}
