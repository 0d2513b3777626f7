//! The subset of protobuf and of ONNX's messages that writing a graph needs. Field numbers are those of onnx.proto.

use half::f16;

/// Successive fields.
#[derive(Default)]
pub(super) struct ProtoMessage(Vec<u8>);

/// Element types, with ONNX's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnnxElement {
    F32 = 1,
    U8 = 2,
    F16 = 10,
}

/// An attribute of a node.
pub(super) enum Attribute<'a> {
    Float(f32),
    Int(i64),
    Ints(&'a [i64]),
    Text(&'a str),
}

const INT64: i64 = 7;
const VARINT: u64 = 0;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

impl ProtoMessage {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn int(&mut self, field: u64, value: i64) {
        self.key(field, VARINT);
        self.varint(value as u64);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, field: u64, text: &str) {
        self.key(field, DELIMITED);
        self.varint(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.key(field, DELIMITED);
        self.varint(message.0.len() as u64);
        self.0.extend_from_slice(&message.0);
    }
}

/// A model file under construction: the file's own fields first, then its graph, which stays open to the end. No tensor
/// is therefore copied from one message to the next.
pub(super) struct OnnxFile {
    bytes: ProtoMessage,
    /// The offset of the graph's length, which is written last.
    graph: usize,
}

/// Bytes reserved for the graph's length: a varint of this size covers protobuf's limit.
const LENGTH: usize = 5;

impl OnnxFile {
    /// Starts a file with an empty graph in `opset` of the default domain, and reserves `capacity` bytes.
    pub(super) fn new(opset: i64, ir_version: i64, metadata: &[(&str, &str)], capacity: usize) -> Self {
        let mut bytes = ProtoMessage(Vec::with_capacity(capacity));
        bytes.int(1, ir_version);
        bytes.text(2, env!("CARGO_PKG_NAME"));
        bytes.text(3, env!("CARGO_PKG_VERSION"));
        let mut opset_id = ProtoMessage::default();
        opset_id.text(1, "");
        opset_id.int(2, opset);
        bytes.message(8, &opset_id);
        for (key, value) in metadata {
            let mut entry = ProtoMessage::default();
            entry.text(1, key);
            entry.text(2, value);
            bytes.message(14, &entry);
        }
        bytes.key(7, DELIMITED);
        let graph = bytes.0.len();
        bytes.0.extend_from_slice(&[0; LENGTH]);
        let mut file = Self { bytes, graph };
        file.bytes.text(2, "dinov2");
        file
    }

    /// Adds a node whose only output has the node's name.
    pub(super) fn node(&mut self, operator: &str, name: &str, inputs: &[&str], attributes: &[(&str, Attribute<'_>)]) {
        let mut node = ProtoMessage::default();
        inputs.iter().for_each(|input| node.text(1, input));
        node.text(2, name);
        node.text(3, name);
        node.text(4, operator);
        attributes.iter().for_each(|(name, value)| node.message(5, &attribute(name, value)));
        self.bytes.message(1, &node);
    }

    /// Adds a constant of floats, rounded to `element`.
    pub(super) fn floats(&mut self, name: &str, shape: &[usize], element: OnnxElement, values: &[f32]) {
        match element {
            OnnxElement::F16 => {
                self.tensor(name, shape, element as i64, values, |&value| f16::from_f32(value).to_le_bytes())
            }
            _ => self.tensor(name, shape, element as i64, values, |value| value.to_le_bytes()),
        }
    }

    /// Adds a constant of integers; `shape` is empty for a scalar.
    pub(super) fn integers(&mut self, name: &str, shape: &[usize], values: &[i64]) {
        self.tensor(name, shape, INT64, values, |value| value.to_le_bytes());
    }

    fn tensor<T, const N: usize>(
        &mut self,
        name: &str,
        shape: &[usize],
        element: i64,
        values: &[T],
        to_bytes: impl Fn(&T) -> [u8; N],
    ) {
        let raw = values.len() * N;
        let mut head = ProtoMessage::default();
        shape.iter().for_each(|&length| head.int(1, length as i64));
        head.int(2, element);
        head.text(8, name);
        head.key(9, DELIMITED);
        head.varint(raw as u64);
        self.bytes.key(5, DELIMITED);
        self.bytes.varint((head.0.len() + raw) as u64);
        self.bytes.0.extend_from_slice(&head.0);
        values.iter().for_each(|value| self.bytes.0.extend_from_slice(&to_bytes(value)));
    }

    /// Adds an input of the graph; its first dimension is any number of images.
    pub(super) fn input(&mut self, name: &str, element: OnnxElement, shape: &[usize]) {
        self.bytes.message(11, &value_info(name, element, shape));
    }

    /// Adds an output of the graph; its first dimension is any number of images.
    pub(super) fn output(&mut self, name: &str, element: OnnxElement, shape: &[usize]) {
        self.bytes.message(12, &value_info(name, element, shape));
    }

    /// Returns the whole file.
    pub(super) fn finish(self) -> Vec<u8> {
        let Self { bytes: ProtoMessage(mut bytes), graph } = self;
        let length = bytes.len() - graph - LENGTH;
        for (i, byte) in bytes[graph..graph + LENGTH].iter_mut().enumerate() {
            let more = if i + 1 < LENGTH { 0x80 } else { 0 };
            *byte = (length >> (7 * i) & 0x7F) as u8 | more;
        }
        bytes
    }
}

fn attribute(name: &str, value: &Attribute<'_>) -> ProtoMessage {
    const TYPE: u64 = 20;
    let mut message = ProtoMessage::default();
    message.text(1, name);
    match value {
        Attribute::Float(value) => {
            message.float(2, *value);
            message.int(TYPE, 1);
        }
        Attribute::Int(value) => {
            message.int(3, *value);
            message.int(TYPE, 2);
        }
        Attribute::Ints(values) => {
            values.iter().for_each(|&value| message.int(8, value));
            message.int(TYPE, 7);
        }
        Attribute::Text(text) => {
            message.text(4, text);
            message.int(TYPE, 3);
        }
    }
    message
}

fn value_info(name: &str, element: OnnxElement, shape: &[usize]) -> ProtoMessage {
    let mut dimensions = ProtoMessage::default();
    let mut batch = ProtoMessage::default();
    batch.text(2, "batch");
    dimensions.message(1, &batch);
    for &length in shape {
        let mut dimension = ProtoMessage::default();
        dimension.int(1, length as i64);
        dimensions.message(1, &dimension);
    }
    let mut tensor = ProtoMessage::default();
    tensor.int(1, element as i64);
    tensor.message(2, &dimensions);
    let mut kind = ProtoMessage::default();
    kind.message(1, &tensor);
    let mut info = ProtoMessage::default();
    info.text(1, name);
    info.message(2, &kind);
    info
}
