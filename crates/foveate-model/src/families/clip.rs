use crate::family::{ConfigDefaults, Family, activation, vit};
use crate::keys::Keys;
use crate::layout::{NameTable, StoredAt};
use crate::network::{Activation, Network, Projection};
use crate::{ModelError, PixelLibrary};
use foveate_encode::Pooling;

/// CLIP in `transformers`' layout: OpenAI's, LAION's, DFN's and MetaCLIP's.
pub(super) const FAMILY: Family = Family {
    name: "CLIP",
    reference: "transformers' CLIPVisionModelWithProjection, image_embeds",
    model_types: &["clip", "clip_vision_model"],
    network,
    layout: &NameTable {
        prefixes: &[],
        own: &["vision_model.", "visual_projection."],
        unused: &["vision_model.embeddings.position_ids"],
        names: &[
            ("embeddings.cls_token", StoredAt::At("vision_model.embeddings.class_embedding")),
            ("embeddings.patch_embeddings.projection", StoredAt::At("vision_model.embeddings.patch_embedding")),
            ("embeddings.position_embeddings", StoredAt::At("vision_model.embeddings.position_embedding.weight")),
            // The library's own spelling.
            ("embeddings.norm", StoredAt::At("vision_model.pre_layrnorm")),
            ("encoder.layer.{}.norm1", StoredAt::At("vision_model.encoder.layers.{}.layer_norm1")),
            (
                "encoder.layer.{}.attention.attention.query",
                StoredAt::At("vision_model.encoder.layers.{}.self_attn.q_proj"),
            ),
            (
                "encoder.layer.{}.attention.attention.key",
                StoredAt::At("vision_model.encoder.layers.{}.self_attn.k_proj"),
            ),
            (
                "encoder.layer.{}.attention.attention.value",
                StoredAt::At("vision_model.encoder.layers.{}.self_attn.v_proj"),
            ),
            (
                "encoder.layer.{}.attention.output.dense",
                StoredAt::At("vision_model.encoder.layers.{}.self_attn.out_proj"),
            ),
            ("encoder.layer.{}.norm2", StoredAt::At("vision_model.encoder.layers.{}.layer_norm2")),
            ("encoder.layer.{}.mlp", StoredAt::At("vision_model.encoder.layers.{}.mlp")),
            ("layernorm", StoredAt::At("vision_model.post_layernorm")),
            ("head.projection", StoredAt::At("visual_projection")),
        ],
    },
    resampler: PixelLibrary::Torchvision,
};

/// `CLIPModel` has the length of a vector beside `vision_config`, the image encoder alone has it with the rest.
fn network(keys: &Keys<'_>) -> Result<Network, ModelError> {
    let nested = keys.object("vision_config")?;
    let vision = if keys.text("model_type")? == Some("clip") { &nested } else { keys };
    let mut network =
        vit(vision, ConfigDefaults { hidden_size: 768, layers: 12, heads: 12, patch_size: 32, epsilon: 1e-5 })?;
    network.mlp_hidden = vision.integer("intermediate_size", Some(3072), 1..=1 << 20)?;
    network.patch_bias = false;
    network.stem_norm = true;
    network.activation = activation(vision, Activation::QuickGelu)?;
    let outputs = keys.integer("projection_dim", Some(512), 1..=1 << 16)?;
    network.projection = Some(Projection { outputs, has_bias: false });
    network.pooling = Pooling::Head;
    Ok(network)
}
