#![doc = include_str!("../README.md")]

macro_rules! cards {
    ($($name:literal),* $(,)?) => {
        /// Every card's name, which is its repository's without the owner, and its TOML text; by family, smallest model
        /// first.
        pub const CARDS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../", $name, ".toml")))),*];
    };
}

cards![
    "dinov2-small",
    "dinov2-base",
    "dinov2-large",
    "dinov2-giant",
    "dinov2-with-registers-small",
    "dinov2-with-registers-base",
    "dinov2-with-registers-large",
    "dinov2-with-registers-giant",
    "dinov3-vits16-pretrain-lvd1689m",
    "dinov3-vits16plus-pretrain-lvd1689m",
    "dinov3-vitb16-pretrain-lvd1689m",
    "dinov3-vitl16-pretrain-lvd1689m",
    "dinov3-vith16plus-pretrain-lvd1689m",
    "siglip-base-patch16-224",
    "siglip-large-patch16-256",
    "siglip2-base-patch16-224",
    "siglip2-so400m-patch14-224",
    "clip-vit-base-patch32",
    "clip-vit-base-patch16",
    "clip-vit-large-patch14",
    "CLIP-ViT-B-32-laion2B-s34B-b79K",
    "vit_pe_core_base_patch16_224.fb",
    "tipsv2-b14",
    "vit-base-patch16-224-in21k",
];
