use super::{siglip, text};
use crate::family::{ConfigDefaults, Family, activation, vit};
use crate::keys::Keys;
use crate::layout::NameTable;
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
        names: siglip::NAMES,
    },
    resampler: PixelLibrary::Torchvision,
    text: Some(&text::CLIP),
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
