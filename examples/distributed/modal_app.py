"""Embeds a collection with Modal, each shard as a call.

modal run modal_app.py --inputs s3://photos/ --output s3://vectors/run/ --shards 8
"""

import modal

app = modal.App("foveate")
image = modal.Image.debian_slim(python_version="3.12").pip_install("foveate")
secrets = [modal.Secret.from_name("store-credentials")]


# A repeated call continues where its shard stopped.
@app.function(image=image, cpu=16, memory=16384, timeout=12 * 3600, retries=5, secrets=secrets)
def embed_shard(shard: str, inputs: str, output: str, model: str) -> int:
    """Embed one shard; return its number of vectors."""
    import foveate

    return foveate.embed(inputs, output=output, shard=shard, model=model)["vectors"]


@app.local_entrypoint()
def main(inputs: str, output: str, shards: int = 8, model: str = "facebook/dinov2-small"):
    """Embed all shards side by side."""
    calls = [(f"{index}/{shards}", inputs, output, model) for index in range(shards)]
    print(f"{sum(embed_shard.starmap(calls))} vectors")
