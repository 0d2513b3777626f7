//! Models from folders: valid ones, and every known kind of damage.
#![allow(clippy::unwrap_used)]

mod sharding;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use foveate_core::Size;
use foveate_encode::Pooling;
use foveate_model::{
    Activation, AttentionBias, Family, Grid, HubOptions, Interpolation, Model, ModelError, Network, NoProgress,
    OpenOptions, PixelLibrary, PositionTable, Preprocess, TensorSpec,
};
use half::{bf16, f16};
use proptest::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models")).join(name)
}

fn open(spec: &str) -> Result<Model, ModelError> {
    // An endpoint that does not exist: nothing here may use the network.
    let hub = HubOptions { endpoint: "http://127.0.0.1:9".to_owned(), ..HubOptions::from_vars(|_| None) };
    Model::open(spec, &OpenOptions { hub, progress: &NoProgress })
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A model's damage: its name, the change, and a part of the expected error.
type Damage<T> = (&'static str, fn(&T), &'static str);

type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// A copy of the tiny model, to be damaged.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "preprocessor_config.json", "model.safetensors"] {
            fs::copy(fixture("tiny").join(file), folder.path().join(file)).unwrap();
        }
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn edit_json(&self, file: &str, edit: impl Fn(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&fs::read(self.path(file)).unwrap()).unwrap();
        edit(&mut value);
        fs::write(self.path(file), value.to_string()).unwrap();
    }

    fn edit_tensors(&self, edit: impl Fn(&mut Tensors)) {
        let bytes = fs::read(self.path("model.safetensors")).unwrap();
        let mut tensors: Tensors = SafeTensors::deserialize(&bytes)
            .unwrap()
            .iter()
            .map(|(name, t)| (name.to_owned(), (t.dtype(), t.shape().to_vec(), t.data().to_vec())))
            .collect();
        edit(&mut tensors);
        let views = tensors
            .iter()
            .map(|(name, (dtype, shape, data))| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
        fs::write(self.path("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    }

    fn edit_bytes(&self, edit: impl Fn(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path("model.safetensors")).unwrap();
        edit(&mut bytes);
        fs::write(self.path("model.safetensors"), bytes).unwrap();
    }

    fn open(&self) -> Result<Model, ModelError> {
        Model::from_folder(self.0.path())
    }

    /// Returns the error, which must be one line that names `file`.
    fn failure(&self, file: &str) -> String {
        let message = self.open().expect_err("it should not open").to_string();
        assert!(!message.contains('\n'), "more than one line: {message}");
        assert!(message.contains(self.path(file).to_str().unwrap()), "does not name {file}: {message}");
        message
    }
}

#[test]
fn the_tiny_models_are_what_their_files_say() {
    for (name, layers, heads, mlp, image, registers, swiglu) in [
        ("tiny", 3, 4, 256, 518, None, false),
        ("tiny-reg", 2, 4, 256, 518, Some(4), false),
        ("tiny-swiglu", 2, 2, 176, 98, None, true),
    ] {
        let model = open(fixture(name).to_str().unwrap()).unwrap();
        let side = image / 14;
        let network = Network {
            hidden_size: 64,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            mlp_hidden: mlp,
            words: None,
            patch_size: 14,
            patch_bias: true,
            class_token: true,
            num_register_tokens: registers.unwrap_or(0),
            mask_token: true,
            positions: Some(PositionTable {
                grid: Grid { height: side, width: side },
                class_row: true,
                interpolation: registers.map_or(Interpolation::Bicubic, |_| Interpolation::BicubicAntialias),
            }),
            rotary: None,
            stem_norm: false,
            attention_bias: AttentionBias::all(true),
            layer_scale: true,
            activation: if swiglu { Activation::GatedSilu } else { Activation::Gelu },
            layer_norm_eps: 1e-6,
            probe: None,
            projection: None,
            pooling: Pooling::Cls,
        };
        assert_eq!(model.network, network);
        let preprocess = Preprocess {
            resampler: PixelLibrary::NearPillow,
            shortest_edge: Some(256),
            longest_edge: None,
            ties_to_even: false,
            resample: 3,
            crop: Size::square(224),
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            rescale_factor: 1.0 / 255.0,
        };
        assert_eq!(model.preprocess, preprocess);
        let grid = network.grid(Size::new(336, 224)).unwrap();
        assert_eq!((grid.height, grid.width), (16, 24));
        assert_eq!(network.tokens(grid), 1 + registers.unwrap_or(0) + 16 * 24);
        assert!((model.revision, model.weights.is_seeded()) == (None, false));
    }
}

#[test]
fn every_tensor_has_the_values_of_the_file() {
    for name in ["tiny", "tiny-reg", "tiny-swiglu"] {
        let model = Model::from_folder(&fixture(name)).unwrap();
        let bytes = fs::read(fixture(name).join("model.safetensors")).unwrap();
        assert_eq!(model.weights.hash(), sha256(&bytes));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let specs = model.network.tensors();
        assert_eq!(specs.len(), file.len(), "the config's list is the checkpoint's");
        for TensorSpec { name, shape, .. } in specs {
            let ours = model.weights.tensor(&name, &shape).unwrap();
            let theirs = file.tensor(&name).unwrap();
            assert_eq!(ours.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(), theirs.data(), "{name}");
            assert_eq!(model.weights.shape(&name), Some(shape));
        }
    }
}

#[test]
fn a_tensor_of_another_name_or_shape_is_not_given() {
    let model = Model::from_folder(&fixture("tiny")).unwrap();
    let error = |name: &str, shape: &[usize]| model.weights.tensor(name, shape).unwrap_err().to_string();
    assert_eq!(error("layernorm.gamma", &[64]), "checkpoint has no tensor 'layernorm.gamma'");
    assert_eq!(error("layernorm.weight", &[65]), "tensor 'layernorm.weight' has shape [64], but [65] is needed");
    let seeded = open("seeded:dinov2-small").unwrap();
    assert!(seeded.weights.tensor("layernorm.gamma", &[384]).is_err());
    assert!(seeded.weights.tensor("layernorm.weight", &[64]).is_err());
}

#[test]
fn shards_are_one_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    sharding::split(&fixture("tiny"), folder.path(), 3);
    let single = Model::from_folder(&fixture("tiny")).unwrap();
    let sharded = Model::from_folder(folder.path()).unwrap();
    for TensorSpec { name, shape, .. } in single.network.tensors() {
        assert_eq!(single.weights.tensor(&name, &shape).unwrap(), sharded.weights.tensor(&name, &shape).unwrap());
    }
    let hashes: String = (1..=3)
        .map(|i| sha256(&fs::read(folder.path().join(format!("model-0000{i}-of-00003.safetensors"))).unwrap()))
        .collect();
    assert_eq!(sharded.weights.hash(), sha256(hashes.as_bytes()));
}

#[test]
fn half_precision_weights_are_widened() {
    let f32s = |data: &[u8]| data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect::<Vec<f32>>();
    let name = "encoder.layer.1.mlp.fc1.weight";
    let exact = Model::from_folder(&fixture("tiny")).unwrap();
    let exact = exact.weights.tensor(name, &[256, 64]).unwrap();
    let folder = Folder::new();
    folder.edit_tensors(|tensors| {
        for (i, (dtype, _, data)) in tensors.values_mut().enumerate() {
            *dtype = if i % 2 == 0 { Dtype::F16 } else { Dtype::BF16 };
            *data = f32s(data)
                .into_iter()
                .flat_map(|x| if i % 2 == 0 { f16::from_f32(x).to_le_bytes() } else { bf16::from_f32(x).to_le_bytes() })
                .collect();
        }
    });
    let half = folder.open().unwrap();
    let half = half.weights.tensor(name, &[256, 64]).unwrap();
    let is_f16 = half.iter().zip(&*exact).all(|(h, &x)| *h == f16::from_f32(x).to_f32());
    let is_bf16 = half.iter().zip(&*exact).all(|(h, &x)| *h == bf16::from_f32(x).to_f32());
    assert!(is_f16 != is_bf16, "one of the two, exactly");
}

#[test]
fn the_backbone_of_a_classifier_is_found_under_its_prefix() {
    let folder = Folder::new();
    folder.edit_tensors(|tensors| {
        *tensors = std::mem::take(tensors).into_iter().map(|(name, t)| (format!("dinov2.{name}"), t)).collect();
        tensors.insert("classifier.weight".to_owned(), (Dtype::I64, vec![1], vec![0; 8]));
    });
    let model = folder.open().unwrap();
    let plain = Model::from_folder(&fixture("tiny")).unwrap();
    assert_eq!(
        model.weights.tensor("layernorm.weight", &[64]).unwrap(),
        plain.weights.tensor("layernorm.weight", &[64]).unwrap()
    );
}

#[test]
fn the_mask_token_may_be_missing() {
    let folder = Folder::new();
    folder.edit_tensors(|tensors| drop(tensors.remove("embeddings.mask_token")));
    folder.open().unwrap();
}

#[test]
fn a_malformed_config_is_answered_with_its_file_and_key() {
    let cases: &[(&str, Value, &str)] = &[
        ("model_type", json!("convnext"), "is 'convnext'; supported are dinov2, dinov2_with_registers, dinov3_vit"),
        ("model_type", json!("clip_text_model"), "a tower for text"),
        ("model_type", json!("siglip2"), "(NaFlex); take a checkpoint of fixed size"),
        ("model_type", json!(null), "'model_type' is missing"),
        ("hidden_act", json!("gelu_new"), "only the exact 'gelu' is supported"),
        ("hidden_act", json!(3), "'hidden_act' is 3, not a string"),
        ("hidden_size", json!("64"), r#"'hidden_size' is "64", not a whole number from 1"#),
        ("hidden_size", json!(0), "'hidden_size' is 0"),
        ("hidden_size", json!(-64), "'hidden_size' is -64"),
        ("hidden_size", json!(1e30), "'hidden_size' is 1e+30"),
        ("hidden_size", json!(63.5), "'hidden_size' is 63.5"),
        ("hidden_size", json!(128), "asks for [1, 1, 128]"),
        ("num_attention_heads", json!(5), "'num_attention_heads' is 5, which does not divide 'hidden_size' 64"),
        ("num_hidden_layers", json!(4), "no tensor 'encoder.layer.3."),
        ("num_hidden_layers", json!(2), "tensor 'encoder.layer.2.attention.attention.key.bias' has no place"),
        ("num_channels", json!(1), "only RGB (3) is supported"),
        ("patch_size", json!([14, 16]), "only square is supported"),
        ("patch_size", json!(0), "'patch_size' is 0"),
        ("patch_size", json!(16), "not a whole number of 16x16 patches|embeddings"),
        ("patch_size", json!(15), "an input of 224x224 pixels is not a whole number of 15x15 patches"),
        ("image_size", json!(7), "'image_size' is smaller than 'patch_size'"),
        (
            "image_size",
            json!(224),
            "'embeddings.position_embeddings' has shape [1, 1370, 64], but the config asks for [1, 257, 64]",
        ),
        ("mlp_ratio", json!(0), "leaves the MLP empty"),
        ("mlp_ratio", json!("4"), "'mlp_ratio' is \"4\""),
        ("use_swiglu_ffn", json!(1), "'use_swiglu_ffn' is 1, not true or false"),
        ("use_swiglu_ffn", json!(true), "no tensor 'encoder.layer.0.mlp.weights_in.weight'"),
        ("layer_norm_eps", json!(-1e-6), "'layer_norm_eps' is -1e-6|'layer_norm_eps' is -1e-06"),
        ("layer_norm_eps", json!("NaN"), "'layer_norm_eps' is \"NaN\""),
        ("qkv_bias", json!(false), "tensor 'encoder.layer.0.attention.attention.key.bias' has no place"),
    ];
    for (key, value, expected) in cases {
        let folder = Folder::new();
        folder.edit_json("config.json", |config| config[*key] = value.clone());
        let message = folder.open().err().unwrap_or_else(|| panic!("{key} = {value} opens")).to_string();
        assert!(expected.split('|').any(|e| message.contains(e)), "{key} = {value}: {message}");
        assert!(!message.contains('\n') && message.contains(folder.0.path().to_str().unwrap()), "{message}");
    }
}

#[test]
fn what_is_no_json_is_said_to_be_none() {
    for (text, expected) in [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1]", "not a JSON object"),
        (r#"{"model_type": "dinov2", "layer_norm_eps": NaN}"#, "not valid JSON"),
        ("\u{feff}{}", "not valid JSON"),
    ] {
        for file in ["config.json", "preprocessor_config.json"] {
            let folder = Folder::new();
            fs::write(folder.path(file), text).unwrap();
            let message = folder.failure(file);
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }
    for file in ["config.json", "preprocessor_config.json"] {
        let folder = Folder::new();
        fs::remove_file(folder.path(file)).unwrap();
        let expected = if file == "config.json" { "this folder has no model" } else { "cannot read" };
        let failure = folder.failure(file);
        assert!(failure.contains(expected), "{failure}");
    }
}

#[test]
fn a_malformed_recipe_is_answered_with_its_file_and_key() {
    let cases: &[(&str, Value, &str)] = &[
        ("image_std", json!([0.2, 0.0, 0.2]), "not a list of three positive numbers"),
        ("image_std", json!([0.2, 0.2]), "'image_std'"),
        ("image_mean", json!([0.5, 0.5, 0.5, 0.5]), "'image_mean'"),
        ("image_mean", json!(0.5), "not a list of three numbers"),
        ("image_mean", json!([1e300, 0, 0]), "'image_mean'"),
        ("rescale_factor", json!(0), "'rescale_factor' is 0"),
        ("rescale_factor", json!("1/255"), "'rescale_factor'"),
        ("resample", json!(6), "'resample' is 6"),
        ("resample", json!("bicubic"), "'resample'"),
        ("do_resize", json!(false), "without a resize images have no common size"),
        ("do_center_crop", json!(false), "without a crop images have no common size"),
        ("size", json!({"longest_edge": 256}), "needs a shortest_edge as well"),
        ("size", json!({"shortest_edge": 256, "longest_edge": 0}), "'size.longest_edge' is 0"),
        ("size", json!({"shortest_edge": 256, "height": 256}), "not a height and a width"),
        ("size", json!({"shortest_edge": 0}), "'size.shortest_edge' is 0"),
        ("size", json!({"height": 256, "width": 256}), "after a stretch to 256x256 it must be the same"),
        ("crop_size", json!({"height": 225, "width": 225}), "not a whole number of 14x14 patches"),
        ("crop_size", json!({"height": 224}), "'crop_size'"),
        ("crop_size", json!({"height": 224, "width": 1_000_000}), "'crop_size.width' is 1000000"),
    ];
    for (key, value, expected) in cases {
        let folder = Folder::new();
        folder.edit_json("preprocessor_config.json", |recipe| recipe[*key] = value.clone());
        let message = folder.failure("preprocessor_config.json");
        assert!(message.contains(expected), "{key} = {value}: {message}");
    }
    let folder = Folder::new();
    folder
        .edit_json("preprocessor_config.json", |recipe| *recipe = json!({"image_processor_type": "FooImageProcessor"}));
    assert!(folder.failure("preprocessor_config.json").contains("is missing and has no default; add it"));
}

#[test]
fn recipes_of_every_form_are_understood() {
    let parse = |value: Value| {
        let json = value.to_string();
        Preprocess::from_json(json.as_bytes(), Path::new("p.json"), PixelLibrary::Pillow).unwrap()
    };
    let square = Size::square;
    let bit = parse(json!({}));
    assert_eq!((bit.shortest_edge, bit.crop, bit.resample), (Some(224), square(224), 3));
    assert_eq!((bit.mean[0], bit.std[2], bit.rescale_factor), (0.481_454_66, 0.275_777_1, 1.0 / 255.0));

    let old = parse(json!({"feature_extractor_type": "BitFeatureExtractor", "image_processor_type": null,
        "do_center_crop": true, "size": 256, "crop_size": 224, "resample": 2,
        "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}));
    assert_eq!((old.crop, old.resample), (square(224), 2));

    let vit = parse(json!({"image_processor_type": "ViTImageProcessor", "do_center_crop": false, "resample": 2,
        "size": {"height": 252, "width": 238}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}));
    assert_eq!((vit.shortest_edge, vit.crop), (None, Size::new(238, 252)));

    let edges = parse(json!({"size": {"shortest_edge": 200, "longest_edge": 300}}));
    assert_eq!((edges.shortest_edge, edges.longest_edge, edges.crop), (Some(200), Some(300), square(224)), "padded");

    let raw = parse(json!({"do_normalize": false, "do_rescale": false}));
    assert_eq!((raw.mean, raw.std, raw.rescale_factor), ([0.0; 3], [1.0; 3], 1.0));
}

#[test]
fn absent_keys_take_the_defaults_of_the_config_classes() {
    let parse = |text: &str| Family::of_json(text.as_bytes(), Path::new("c.json")).unwrap().1;
    let plain = parse(r#"{"model_type": "dinov2"}"#);
    assert_eq!((plain.hidden_size, plain.num_hidden_layers, plain.num_attention_heads), (768, 12, 12));
    assert_eq!((plain.mlp_hidden, plain.patch_size, plain.positions.unwrap().grid.width), (3072, 14, 16));
    assert_eq!(
        (plain.layer_norm_eps, plain.attention_bias, plain.activation),
        (1e-6, AttentionBias::all(true), Activation::Gelu)
    );
    let registers = parse(r#"{"model_type": "dinov2_with_registers"}"#);
    assert_eq!((registers.patch_size, registers.num_register_tokens), (16, 4));
    assert_eq!(parse(r#"{"model_type": "dinov2", "patch_size": [16, 16]}"#).patch_size, 16);
    let giant = r#"{"model_type": "dinov2", "hidden_size": 1536, "num_attention_heads": 24, "use_swiglu_ffn": true}"#;
    assert_eq!(parse(giant).mlp_hidden, 4096);
}

#[test]
fn sizes_that_patches_do_not_divide_are_refused() {
    let (_, network) = Family::of_json(br#"{"model_type": "dinov2"}"#, Path::new("c.json")).unwrap();
    for size in [Size::new(0, 14), Size::new(14, 15), Size::new(13, 14), Size::new(0, 0)] {
        let message = network.grid(size).unwrap_err().to_string();
        assert!(message.contains(&size.to_string()) && message.contains("14x14"), "{message}");
    }
}

#[test]
fn malformed_weights_are_answered_with_their_file() {
    let cases: &[Damage<Folder>] = &[
        ("empty", |f| f.edit_bytes(Vec::clear), "0 bytes are no safetensors file"),
        ("seven bytes", |f| f.edit_bytes(|b| b.truncate(7)), "7 bytes are no safetensors file"),
        ("truncated header", |f| f.edit_bytes(|b| b.truncate(100)), "truncated or not safetensors"),
        ("truncated data", |f| f.edit_bytes(|b| b.truncate(500_000)), "truncated: 500000 of 1110008 bytes"),
        ("bytes too many", |f| f.edit_bytes(|b| b.push(0)), "more than its header accounts for"),
        ("huge header", |f| f.edit_bytes(|b| b[..8].fill(0xFF)), "truncated or not safetensors"),
        ("not JSON", |f| f.edit_bytes(|b| b[8] = b'['), "not a safetensors header"),
        ("a web page", |f| f.edit_bytes(|b| *b = b"<!DOCTYPE html><html></html>".to_vec()), "not safetensors"),
        (
            "git-lfs pointer",
            |f| f.edit_bytes(|b| *b = b"version https://git-lfs.github.com/spec/v1".to_vec()),
            "not the file it stands for; run `git lfs pull`",
        ),
        (
            "wrong dtype",
            |f| f.edit_tensors(|t| t.get_mut("layernorm.bias").unwrap().0 = Dtype::I32),
            "tensor 'layernorm.bias' is I32; only F32, F16 and BF16 are supported",
        ),
        (
            "wrong shape",
            |f| f.edit_tensors(|t| t.get_mut("layernorm.bias").unwrap().1 = vec![8, 8]),
            "tensor 'layernorm.bias' has shape [8, 8], but the config asks for [64]",
        ),
        (
            "missing tensor",
            |f| f.edit_tensors(|t| drop(t.remove("encoder.layer.2.layer_scale1.lambda1"))),
            "no tensor 'encoder.layer.2.layer_scale1.lambda1', which the model in the config needs",
        ),
        (
            "extra tensor",
            |f| {
                f.edit_tensors(|t| {
                    drop(t.insert("embeddings.register_tokens".to_owned(), (Dtype::F32, vec![1, 1, 64], vec![0; 256])));
                });
            },
            "tensor 'embeddings.register_tokens' has no place",
        ),
        (
            "the same tensor under two names",
            |f| {
                f.edit_tensors(|t| {
                    let bias = t["layernorm.bias"].clone();
                    t.insert("dinov2.layernorm.bias".to_owned(), bias);
                });
            },
            "is in the checkpoint twice",
        ),
    ];
    for (what, damage, expected) in cases {
        let folder = Folder::new();
        damage(&folder);
        let message = folder.failure("model.safetensors");
        assert!(message.contains(expected), "{what}: {message}");
    }
}

#[test]
fn no_weights_at_all_are_answered_with_what_would_be_some() {
    let folder = Folder::new();
    fs::remove_file(folder.path("model.safetensors")).unwrap();
    let message = folder.open().err().unwrap().to_string();
    assert!(
        message.contains(
            "none of model.safetensors, model.safetensors.index.json, open_clip_model.safetensors, pytorch_model.bin"
        ),
        "{message}"
    );
    for (bytes, expected) in
        [(&b""[..], "convert it with"), (b"\x80\x02l", "convert it with"), (b"version https", "git lfs pull")]
    {
        fs::write(folder.path("pytorch_model.bin"), bytes).unwrap();
        let message = folder.failure("pytorch_model.bin");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn weights_that_are_not_finite_are_refused_by_name() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let folder = Folder::new();
        folder.edit_tensors(|tensors| {
            let bias = tensors.get_mut("layernorm.bias").unwrap();
            bias.2[8..12].copy_from_slice(&bad.to_le_bytes());
        });
        let model = folder.open().unwrap();
        let message = model.weights.tensor("layernorm.bias", &[64]).unwrap_err().to_string();
        assert!(message.contains("value 2 of tensor 'layernorm.bias' is "), "{message}");
    }
}

/// Written by `torch.save`.
#[cfg(feature = "pickle")]
#[test]
fn pytorchs_format_is_read_and_damage_to_it_is_an_error() {
    let source = fixture("pickled");
    let model = Model::from_folder(&source).unwrap();
    assert_eq!(model.network.hidden_size, 16);
    for spec in model.network.tensors().iter().filter(|spec| !spec.optional) {
        let values = model.weights.tensor(&spec.name, &spec.shape).unwrap();
        assert!(values.iter().all(|value| value.is_finite() && value.abs() < 10.0), "{}", spec.name);
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "preprocessor_config.json"] {
        fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    let whole = fs::read(source.join("pytorch_model.bin")).unwrap();
    let bin = folder.path().join("pytorch_model.bin");
    let shard = folder.path().join("pytorch_model-1.bin");
    for len in (0..whole.len()).step_by(997) {
        fs::write(&bin, &whole[..len]).unwrap();
        assert!(Model::from_folder(folder.path()).is_err(), "cut to {len}");
    }
    for at in (whole.len() - 6000..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&bin, bytes).unwrap();
        let _: Option<Model> = Model::from_folder(folder.path()).ok();
    }
    fs::remove_file(&bin).unwrap();
    fs::write(&shard, &whole).unwrap();
    let map: serde_json::Map<String, Value> =
        [("layernorm.bias".to_owned(), json!("pytorch_model-1.bin"))].into_iter().collect();
    fs::write(folder.path().join("pytorch_model.bin.index.json"), json!({ "weight_map": map }).to_string()).unwrap();
    let sharded = Model::from_folder(folder.path()).unwrap();
    assert_eq!(sharded.weights.hash(), model.weights.hash());
}

#[test]
fn malformed_shards_are_answered_with_their_file() {
    const INDEX: &str = "model.safetensors.index.json";
    const SECOND: &str = "model-00002-of-00002.safetensors";
    let cases: &[Damage<Path>] = &[
        ("missing shard", |f| fs::remove_file(f.join(SECOND)).unwrap(), SECOND),
        ("index is no JSON", |f| fs::write(f.join(INDEX), "{").unwrap(), "not valid JSON"),
        ("no map", |f| fs::write(f.join(INDEX), "{}").unwrap(), "'weight_map' is missing"),
        (
            "out of the folder",
            |f| fs::write(f.join(INDEX), r#"{"weight_map": {"a": "../x.safetensors"}}"#).unwrap(),
            "no file name",
        ),
        ("another file", |f| fs::write(f.join(INDEX), r#"{"weight_map": {"a": "passwd"}}"#).unwrap(), "no file name"),
        (
            "tensor elsewhere",
            |f| {
                let text = fs::read_to_string(f.join(INDEX)).unwrap();
                let mut index: Value = serde_json::from_str(&text).unwrap();
                let place = &mut index["weight_map"]["embeddings.cls_token"];
                assert_eq!(*place, "model-00001-of-00002.safetensors");
                *place = json!(SECOND);
                fs::write(f.join(INDEX), index.to_string()).unwrap();
            },
            "'embeddings.cls_token' is not in model-00002-of-00002.safetensors",
        ),
        (
            "tensor in both",
            |f| {
                fs::copy(f.join("model-00001-of-00002.safetensors"), f.join(SECOND)).unwrap();
            },
            "is in the checkpoint twice",
        ),
    ];
    for (what, damage, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        sharding::split(&fixture("tiny"), folder.path(), 2);
        damage(folder.path());
        let message = Model::from_folder(folder.path()).err().unwrap_or_else(|| panic!("{what} opens")).to_string();
        assert!(message.contains(expected) && message.contains(folder.path().to_str().unwrap()), "{what}: {message}");
    }
}

#[test]
fn what_names_no_model_is_answered_with_what_would() {
    for (spec, expected) in [
        ("", "owner/name[@revision]"),
        ("./no/such/folder", "neither an existing folder"),
        ("dinov2-small", "did you mean facebook/dinov2-small (the hub's) or seeded:dinov2-small (generated)?"),
        ("seeded:dinov2-tiny", "known: dinov2-small, dinov2-base"),
        ("seeded:", "known: dinov2-small"),
    ] {
        let message = open(spec).err().unwrap().to_string();
        assert!(message.contains(expected), "{spec}: {message}");
    }
}

#[test]
fn seeded_models_need_nothing_and_say_what_they_are() {
    let model = open("seeded:dinov2-with-registers-small").unwrap();
    assert_eq!((model.name.as_str(), model.revision), ("seeded:dinov2-with-registers-small", None));
    assert!(model.weights.is_seeded());
    assert_eq!((model.network.num_register_tokens, model.preprocess.shortest_edge), (4, Some(256)));
    let other = open("seeded:facebook/dinov2-small").unwrap();
    assert!(model.weights.hash().len() == 64 && model.weights.hash() != other.weights.hash());
    assert_eq!(other.weights.hash(), open("seeded:dinov2-small").unwrap().weights.hash());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_config_makes_us_panic(key in 0..KEYS.len(), number in any::<f64>(), text in ".{0,8}", kind in 0..5) {
        let value = match kind {
            0 => json!(number),
            1 => json!(number as i64),
            2 => json!(text),
            3 => json!([number as i64, 14]),
            _ => json!({ "height": number as u32, "width": 14, "shortest_edge": number }),
        };
        let json = json!({ "model_type": "dinov2_with_registers", KEYS[key]: value }).to_string();
        let path = Path::new("x.json");
        if let Ok((_, network)) = Family::of_json(json.as_bytes(), path) {
            prop_assert!(network.hidden_size % network.num_attention_heads == 0 && network.head_size() > 0);
            prop_assert!(network.parameters() > 0);
        }
        if let Ok(preprocess) = Preprocess::from_json(json.as_bytes(), path, PixelLibrary::Pillow) {
            prop_assert!(!preprocess.crop.is_empty() && preprocess.std.iter().all(|&std| std > 0.0));
        }
    }

    #[test]
    fn no_bytes_make_us_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let path = Path::new("x.json");
        prop_assert!(Family::of_json(&bytes, path).is_err());
        let _ = Preprocess::from_json(&bytes, path, PixelLibrary::Pillow);
    }

    #[test]
    fn no_damage_to_a_header_makes_us_panic(at in 0usize..4000, byte in any::<u8>(), length in any::<Option<u16>>()) {
        let folder = Folder::new();
        folder.edit_bytes(|bytes| {
            bytes[at] = byte;
            if let Some(length) = length {
                bytes[..8].copy_from_slice(&u64::from(length).to_le_bytes());
            }
        });
        if let Ok(model) = folder.open() {
            for TensorSpec { name, shape, .. } in model.network.tensors() {
                let _ = model.weights.tensor(&name, &shape);
            }
        }
    }
}

const KEYS: [&str; 18] = [
    "model_type",
    "hidden_act",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "mlp_ratio",
    "patch_size",
    "image_size",
    "num_register_tokens",
    "layer_norm_eps",
    "num_channels",
    "use_swiglu_ffn",
    "size",
    "crop_size",
    "resample",
    "image_std",
    "image_mean",
    "rescale_factor",
];
