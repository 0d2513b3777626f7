"""Networks of transformers with random weights, saved for foveate, and their vectors in any precision."""

import contextlib
import copy

import numpy as np
import torch
import transformers
from PIL import Image

from common import SHAPES, Failed

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def require(device):
    """Raises an error if PyTorch cannot compute on the device."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise Failed("PyTorch finds no CUDA device")


def network(name, attention="sdpa", device="cpu"):
    """A network of one of SHAPES, or `giant-shaped`: SwiGLU, four registers, heads of 64, but narrow and shallow."""
    if name == "giant-shaped":
        shape = {**SHAPES["small"], "num_hidden_layers": 4}
        config = transformers.Dinov2WithRegistersConfig(**shape, use_swiglu_ffn=True, num_register_tokens=4)
        kind = transformers.Dinov2WithRegistersModel
    else:
        config, kind = transformers.Dinov2Config(**SHAPES[name]), transformers.Dinov2Model
    config._attn_implementation = attention
    with torch.device(device):
        return kind(config).eval()


class HiddenState(torch.nn.Module):
    """A network whose only output is a tensor, for export."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, pixels):
        return self.network(pixel_values=pixels).last_hidden_state


def randomize(model):
    """Weights large enough that every part of the network affects its output."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            noise = torch.randn(weights.shape, generator=generator)
            is_token = name.endswith(("cls_token", "mask_token", "position_embeddings", "register_tokens"))
            if is_token:
                weights.copy_(0.5 * noise)
            elif weights.dim() > 1:
                weights.copy_(noise / weights[0].numel() ** 0.5)
            elif name.endswith("lambda1") or ("norm" in name and name.endswith("weight")):
                weights.copy_(1 + 0.2 * noise)
            else:
                weights.copy_(0.1 * noise)


def pixels(crops):
    """`[n, 3, 224, 224]` f64, normalized, of images that are 224 pixels wide and high."""
    images = np.stack([np.asarray(Image.open(crop).convert("RGB")) for crop in crops])
    normal = (images.astype(np.float64) / 255 - MEAN) / STD
    return torch.from_numpy(normal).permute(0, 3, 1, 2).contiguous()


@contextlib.contextmanager
def exact_f32():
    """Turns TF32 off in products and convolutions."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class Reference:
    def __init__(self, name, folder, images, device, shallow):
        torch.manual_seed(0)
        self.images, self.device = images, device
        self.model = network("small" if name == "small-random" else name)
        if shallow:
            layers = self.model.encoder.layer
            del layers[2:]
            self.model.config.num_hidden_layers = 2
            self.model.config.out_features, self.model.config.out_indices = None, None
        randomize(self.model)
        self.model.save_pretrained(folder)
        self.prefix = 1 + getattr(self.model.config, "num_register_tokens", 0)
        self.truth = self.vectors("f64")

    def vectors(self, dtype):
        """`[n, 2 * width]` f64 on the host: class token and patch mean."""
        model = copy.deepcopy(self.model).to(device=self.device, dtype=DTYPES[dtype])
        with torch.inference_mode(), exact_f32():
            hidden = model(self.images.to(device=self.device, dtype=DTYPES[dtype])).last_hidden_state.double()
        return torch.cat([hidden[:, 0], hidden[:, self.prefix :].mean(1)], 1).cpu().numpy()
