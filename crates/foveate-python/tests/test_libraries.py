"""Texts and logits of foveate beside those of transformers and open_clip, which compute here, in the long form."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT, needs

needs("torch", "transformers", "sentencepiece", "open_clip")

import torch
from open_clip.model import _build_text_tower
from open_clip.tokenizer import SimpleTokenizer
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

import foveate

FAMILIES: Path = ROOT.parent / "shared/data/families"
pytestmark = pytest.mark.skipif(not FAMILIES.is_dir(), reason=f"{FAMILIES} is missing")

WORDS = (
    "a red bicycle in snow кот на диване 自行车 雪の中 자전거 دراجة אופניים साइकिल จักรยาน ποδήλατο հեծանիվ ველოსიპედი "
    "Straße café 12 -- (front view) it's 🐶 ＯＮ ﬂoor ¼ \t UPPER"
).split(" ")


def sentences() -> list[str]:
    choose = random.Random(1)
    made = [" ".join(choose.choices(WORDS, k=choose.randint(1, 90))) for _ in range(1000)]
    return [text if text.strip() else "a" for text in made]


def agree(ours: np.ndarray, theirs: torch.Tensor) -> None:
    other = theirs.numpy().astype(np.float64)
    cosines = (ours * other).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(other, axis=1)
    assert cosines.min() >= 0.999999, sentences()[int(cosines.argmin())]


@pytest.mark.parametrize("family", ["clip-gelu", "clip-quickgelu", "siglip", "siglip2-fixed"])
def test_transformers(family):
    folder = FAMILIES / family
    texts = sentences()
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    length = model.config.text_config.max_position_embeddings
    tokens = tokenizer(texts, padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    is_clip = family.startswith("clip")
    with torch.inference_mode():
        given = {"input_ids": tokens["input_ids"]} | ({"attention_mask": tokens["attention_mask"]} if is_clip else {})
        theirs = model.get_text_features(**given)
        theirs = getattr(theirs, "pooler_output", theirs)
    embedder = foveate.Embedder(folder)
    ours, errors = embedder.embed_text(texts)
    assert errors == [None] * len(texts)
    agree(ours.astype(np.float64), theirs)
    # Logits of made-up images.
    images = np.random.default_rng(0).standard_normal((5, embedder.dim), np.float32)
    scale, bias = embedder.logits
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (images, ours)]
    logits = model.logit_scale.exp() * torch.tensor(unit[0]) @ torch.nn.functional.normalize(theirs).T
    logits = (logits + getattr(model, "logit_bias", 0)).detach().numpy()
    assert np.abs(scale * unit[0] @ unit[1].T + (bias or 0) - logits).max() < 1e-3


@pytest.mark.parametrize("family", ["openclip", "pe-core-openclip"])
def test_open_clip(family):
    folder = FAMILIES / family
    texts = sentences()
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    # Alone, because open_clip has no image tower as small as PE-Core's here.
    tower = _build_text_tower(config["embed_dim"], config["text_cfg"], config.get("quick_gelu", False)).eval()
    stored = load_file(folder / "open_clip_model.safetensors")
    weights = {name.removeprefix("text."): value for name, value in stored.items()}
    missing, _ = tower.load_state_dict(weights, strict=False)
    assert set(missing) <= {"attn_mask"}
    tokenizer = SimpleTokenizer(
        bpe_path=str(folder / "bpe_simple_vocab.txt.gz"), context_length=config["text_cfg"]["context_length"]
    )
    with torch.inference_mode():
        theirs = tower(tokenizer(texts))
    agree(foveate.Embedder(folder).embed_text(texts).vectors.astype(np.float64), theirs)
