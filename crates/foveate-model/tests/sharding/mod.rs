//! Splits a single checkpoint into a sharded one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

/// Copies the model in `from` to `to`, with its weights distributed over `shards` files and an index.
pub(crate) fn split(from: &Path, to: &Path, shards: usize) {
    for file in ["config.json", "preprocessor_config.json"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let bytes = fs::read(from.join("model.safetensors")).unwrap();
    let mut tensors = SafeTensors::deserialize(&bytes).unwrap().tensors();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let shard_name = |shard: usize| format!("model-{:05}-of-{shards:05}.safetensors", shard + 1);
    let mut weight_map = BTreeMap::new();
    for shard in 0..shards {
        let part: Vec<_> = tensors.iter().enumerate().filter(|(i, _)| i % shards == shard).map(|(_, t)| t).collect();
        weight_map.extend(part.iter().map(|(name, _)| (name.clone(), shard_name(shard))));
        let part = part.into_iter().map(|(name, tensor)| (name, tensor));
        fs::write(to.join(shard_name(shard)), safetensors::serialize(part, None).unwrap()).unwrap();
    }
    let index = serde_json::json!({ "metadata": { "total_size": bytes.len() }, "weight_map": weight_map });
    fs::write(to.join("model.safetensors.index.json"), index.to_string()).unwrap();
}
